"""Manifests: what an artefact holds, and publishing it whole or not at all.

An artefact is a folder. Its ``manifest.json`` is the commit point: written last into a temporary folder beside the
final one, which then takes its place by one rename. A folder without a valid manifest does not exist to the pipeline.

A manifest holds the identity and fingerprint the artefact was made from (see fingerprint.py), and name, bytes and
sha256 of every file. It is untrusted data: a name in it never leads out of the artefact's folder.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pipeline.errors import DamagedArtefactError, StorageError
from pipeline.fingerprint import fingerprint

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1


def read_manifest(folder: Path) -> dict:
    """The manifest of a published artefact.

    Raises:
        DamagedArtefactError: there is none, or it is not what this version writes.
    """
    path = folder / MANIFEST_NAME
    try:
        manifest = json.loads(path.read_bytes())
        recorded = manifest["fingerprint"], manifest["schema_version"]
        names = [entry["name"] for entry in manifest["files"]]
        expected = fingerprint(manifest["identity"]), SCHEMA_VERSION
    except FileNotFoundError:
        raise DamagedArtefactError(f"{path}: expected a manifest, found none. {_REMEDY}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedArtefactError(f"{path}: not a manifest ({error!r}). {_REMEDY}") from None
    if recorded != expected:
        raise DamagedArtefactError(f"{path}: expected fingerprint and schema {expected}, got {recorded}. {_REMEDY}")
    for name in names:
        _refuse_escape(path, name)
    return manifest


def check_sizes(folder: Path, manifest: Mapping, *, shared: bool = False) -> None:
    """Cheap check: the files listed are there with their sizes, and (unless ``shared``) no others.

    Raises:
        DamagedArtefactError: names the first file that is missing, resized or not listed.
    """
    listed = {entry["name"]: entry["bytes"] for entry in manifest["files"]}
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    strangers = set() if shared else present - {MANIFEST_NAME} - listed.keys()
    for name in sorted(strangers):
        raise DamagedArtefactError(f"{folder / name}: the manifest lists no such file. {_REMEDY}")
    for name, size in listed.items():
        actual = (folder / name).stat().st_size if name in present else "no file"
        if actual != size:
            raise DamagedArtefactError(f"{folder / name}: manifest lists {size} bytes, found {actual}. {_REMEDY}")


def check_contents(folder: Path, manifest: Mapping) -> None:
    """Whole check: sizes, then the sha256 of every file.

    Raises:
        DamagedArtefactError: names the first file that differs.
    """
    check_sizes(folder, manifest)
    for entry in manifest["files"]:
        actual = sha256_of(folder / entry["name"])
        if actual != entry["sha256"]:
            raise DamagedArtefactError(
                f"{folder / entry['name']}: manifest lists sha256 {entry['sha256'][:12]}…, "
                f"found {actual[:12]}…. {_REMEDY}"
            )


def write_manifest(folder: Path, *, stage: str, identity: Mapping, details: Mapping) -> dict:
    """Describe every file now in ``folder`` and write its manifest; returns what was written.

    ``details`` is merged in at the top level. A ``files`` entry of it, name → extra fields, is merged into the
    description of that file (a shard's number of records, say).
    """
    extra = details.get("files", {})
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "stage": stage,
        "fingerprint": fingerprint(identity),
        "identity": identity,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **{key: value for key, value in details.items() if key != "files"},
        "files": [_describe(folder, path, extra) for path in sorted(folder.rglob("*")) if path.is_file()],
    }
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


@contextlib.contextmanager
def publishing(final: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``final`` when the block ends well, and vanishes when it does not.

    Raises:
        StorageError: the folder cannot be made; names the path and the cause.
    """
    with _temporary_folder(final) as temporary:
        yield temporary
        _flush(temporary)
        _take_place(temporary, final)


@contextlib.contextmanager
def publishing_in_place(final: Path) -> Iterator[Path]:
    """As ``publishing``, for files at a stable path that people may have open or keep others beside.

    Each file replaces its namesake by one rename, the manifest last: no moment without a whole file of each name.
    """
    with _temporary_folder(final) as temporary:
        yield temporary
        _flush(temporary)
        final.mkdir(exist_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
            os.replace(path, final / path.name)
        _flush_folder(final)


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_REMEDY = 'Run "make pipeline" to rebuild it.'


@contextlib.contextmanager
def _temporary_folder(final: Path) -> Iterator[Path]:
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    except OSError as error:
        raise StorageError(
            f"{final.parent}: cannot be written ({error.strerror}). Set [Storage] root to a writable folder."
        ) from error
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _describe(folder: Path, path: Path, extra: Mapping) -> dict:
    name = path.relative_to(folder).as_posix()
    return {"name": name, "bytes": path.stat().st_size, "sha256": sha256_of(path), **extra.get(name, {})}


def _refuse_escape(manifest_path: Path, name: object) -> None:
    parts = Path(name).parts if isinstance(name, str) else ("..",)
    inside = manifest_path.parent.joinpath(*parts)
    if ".." in parts or Path(*parts).is_absolute() or inside.is_symlink():
        raise DamagedArtefactError(f"{manifest_path}: refuses the file name {name!r}, it leads out of the folder.")


def _take_place(temporary: Path, final: Path) -> None:
    """Rename ``temporary`` to ``final``; a folder already there is set aside first and then removed."""
    aside = temporary.with_name(temporary.name + ".old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(final, aside)
    os.rename(temporary, final)
    _flush_folder(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Force every file and folder below ``folder`` to disk: a rename must not outrun the bytes it publishes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _flush_folder(path)
    _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
