"""The file of a run's initial weights, identified by its content."""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.errors import DamagedArtifactError, SettingsError

SUFFIXES = (".keras", ".safetensors")
# The part of a .keras file with dates and the version of Keras.
_METADATA = "metadata.json"


@dataclass(frozen=True, kw_only=True)
class InitialWeights:
    """A ``.keras`` or ``.safetensors`` file, the sha256 of its content, and the run that wrote it, if known."""

    file: Path
    digest: str
    run: str | None = None
    run_folder: Path | None = None


def find_initial_weights(given: str, runs: Path) -> InitialWeights:
    """The weights of a run in ``runs`` by its name, or of a run or file by its path. SettingsError: there are none."""
    # With pydantic it costs a tenth of a second, which most starts need not spend.
    from pipeline.runs.metrics import WEIGHTS_NAME

    path = runs / given if (runs / given).is_dir() else Path(given).expanduser()
    if path.is_dir():
        file = path / WEIGHTS_NAME
        if not (path / MANIFEST_NAME).is_file() or not file.is_file():
            raise _refusal(given, f"{path} is no run with weights")
    elif path.is_file() and path.suffix in SUFFIXES:
        file = path
    else:
        raise _refusal(given, f"there is no such run in {runs}, and no such file")
    run, folder = None, file.resolve().parent
    if (folder / MANIFEST_NAME).is_file():
        try:
            run = read_manifest(folder)["fingerprint"]
        except DamagedArtifactError as error:
            raise _refusal(given, str(error).rstrip(".")) from error
    return InitialWeights(file=file, digest=digest_of(file, given), run=run, run_folder=folder if run else None)


def digest_of(file: Path, given: str) -> str:
    """Sha256 of the weights in a file, as 64 hex digits. Raises SettingsError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        if file.suffix != ".keras":
            digest.update(file.read_bytes())
            return digest.hexdigest()
        with zipfile.ZipFile(file) as archive:
            for name in sorted(set(archive.namelist()) - {_METADATA}):
                digest.update(f"{name}\0{archive.getinfo(name).file_size}\0".encode() + archive.read(name))
    except (OSError, zipfile.BadZipFile) as error:
        raise _refusal(given, f"{file} cannot be read: {error}") from error
    return digest.hexdigest()


def _refusal(given: str, problem: str) -> SettingsError:
    return SettingsError(
        "[Train] initial_weights: expected the folder of a run with weights, or a file that ends in "
        f"{' or '.join(SUFFIXES)}, got {given!r}: {problem}."
    )
