"""File of a run's initial weights, identified by its content."""

import hashlib
import importlib.metadata
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.artifacts.stamps import current_stamp
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.optional_packages import install_command
from pipeline.settings.training import PRETRAINED, RANDOM

SUFFIXES = (".keras", ".safetensors")
# Member of a .keras file with dates and the version of Keras.
_METADATA = "metadata.json"


@dataclass(frozen=True, kw_only=True)
class InitialWeights:
    """A file of weights, the sha256 of its content ("" before its download), and the run that wrote it, if known."""

    file: Path
    digest: str
    run: str | None = None
    run_folder: Path | None = None


def find_initial_weights(value: str, runs: Path, model: str = "") -> InitialWeights | None:
    """Find weights of a run in ``runs`` by name, or of a run or file by path. Raises SettingsError without a match.

    An empty ``value`` selects the weights of a ``model`` in ``PRETRAINED``, from their package or from Keras's cache.
    None means random weights.
    """
    if value in ("", RANDOM):
        return _pretrained(model) if not value and model in PRETRAINED else None
    # This imports pydantic, which takes a tenth of a second that most starts do not need.
    from pipeline.runs.metrics import WEIGHTS_NAME

    path = runs / value if (runs / value).is_dir() else Path(value).expanduser()
    if path.is_dir():
        file = path / WEIGHTS_NAME
        if not (path / MANIFEST_NAME).is_file() or not file.is_file():
            raise _refusal(value, f"{path} is no run with weights")
    elif path.is_file() and path.suffix in SUFFIXES:
        file = path
    else:
        raise _refusal(value, f"there is no such run in {runs}, and no such file")
    run, folder = None, file.resolve().parent
    if (folder / MANIFEST_NAME).is_file():
        try:
            run = read_manifest(folder)["fingerprint"]
        except DamagedArtifactError as error:
            raise _refusal(value, str(error).rstrip(".")) from error
    return InitialWeights(file=file, digest=digest_of(file, value), run=run, run_folder=folder if run else None)


def _pretrained(model: str) -> InitialWeights:
    distribution, name = PRETRAINED[model]
    if not distribution:
        file = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().resolve() / "models" / name
        return InitialWeights(file=file, digest=digest_of(file, model) if file.is_file() else "")
    try:
        file = Path(importlib.metadata.distribution(distribution).locate_file(name))
    except importlib.metadata.PackageNotFoundError as error:
        raise SettingsError(
            f"[Train] model: the weights of {model} are in the package {distribution}, which is not installed. Install "
            f"it with: {install_command()}"
        ) from error
    return InitialWeights(file=file, digest=digest_of(file, model))


def digest_of(file: Path, value: str) -> str:
    """Return the sha256 of the weights in a file, as 64 hex digits. Raises SettingsError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        if file.suffix != ".keras":
            return current_stamp(file, None)["sha256"]
        with zipfile.ZipFile(file) as archive:
            for name in sorted(set(archive.namelist()) - {_METADATA}):
                digest.update(f"{name}\0{archive.getinfo(name).file_size}\0".encode() + archive.read(name))
    except (OSError, zipfile.BadZipFile) as error:
        raise _refusal(value, f"{file} cannot be read: {error}") from error
    return digest.hexdigest()


def _refusal(value: str, problem: str) -> SettingsError:
    return SettingsError(
        "[Train] initial_weights: expected the folder of a run with weights, or a file that ends in "
        f"{' or '.join(SUFFIXES)}, got {value!r}: {problem}."
    )
