"""Initial weights: which file a run starts from, and what is in it (run → **training** → run).

A run is named by its folder, or a file is: what ``training/initial.py`` takes of it is decided there, for it needs the
network. A file counts by its content and not by its place. What says when a ``.keras`` file was saved is no part of it.
"""

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.errors import DamagedArtefactError, SettingsError
from pipeline.runs import words
from pipeline.runs.metrics import WEIGHTS_NAME

SUFFIXES = (".keras", ".safetensors")
# Of a .keras file: dates, and the version of Keras.
_NO_CONTENT = "metadata.json"


@dataclass(frozen=True, kw_only=True)
class InitialWeights:
    """Where weights come from.

    Attributes:
        file: a ``.keras`` or ``.safetensors`` file.
        digest: sha256 of its content.
        run: fingerprint of the run that left it; None where that is not known.
        run_folder: that run's folder.
    """

    file: Path
    digest: str
    run: str | None = None
    run_folder: Path | None = None


def find_initial_weights(given: str, runs: Path) -> InitialWeights:
    """The weights that the settings name, as a run's folder in ``runs``, or as the path of a run or a file.

    Raises:
        SettingsError: there are none.
    """
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
        except DamagedArtefactError as error:
            raise _refusal(given, str(error).rstrip(".")) from error
    return InitialWeights(file=file, digest=digest_of(file, given), run=run, run_folder=folder if run else None)


def digest_of(file: Path, given: str) -> str:
    """Sha256 of the weights in a file, as 64 hex digits.

    Raises:
        SettingsError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        if file.suffix != ".keras":
            digest.update(file.read_bytes())
            return digest.hexdigest()
        with zipfile.ZipFile(file) as archive:
            for name in sorted(set(archive.namelist()) - {_NO_CONTENT}):
                digest.update(f"{name}\0{archive.getinfo(name).file_size}\0".encode() + archive.read(name))
    except (OSError, zipfile.BadZipFile) as error:
        raise _refusal(given, f"{file} cannot be read: {error}") from error
    return digest.hexdigest()


def _refusal(given: str, problem: str) -> SettingsError:
    return SettingsError(words.no_weights(given, SUFFIXES, problem))
