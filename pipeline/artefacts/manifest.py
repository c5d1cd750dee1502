"""Manifests: what an artefact holds, and publishing it whole or not at all.

An artefact is a folder. Its ``manifest.json`` is the commit point: written last into a temporary folder beside the
final one, which then takes its place by one rename, or changes places with the one that is there already. A folder
without a valid manifest does not exist to the pipeline. Files that the manifest does not list are no part of the
artefact: they are named in a warning, and stay even where the artefact is rebuilt.

A manifest holds the identity and fingerprint the artefact was made from (see fingerprint.py), and name, bytes and
sha256 of every file. It is untrusted data: a name in it never leads out of the artefact's folder.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Collection, Container, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pipeline.artefacts.exchange import exchange
from pipeline.artefacts.fetched import FETCHED_NAME
from pipeline.artefacts.fingerprint import fingerprint
from pipeline.artefacts.space import require_space, storage_cause, storage_error
from pipeline.artefacts.verified import is_about_verification, read_verified, stamp_of, write_verified
from pipeline.errors import DamagedArtefactError, PipelineError, UnreadableArtefactError

MANIFEST_NAME = "manifest.json"
SCHEMA_VERSION = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
# No file of ours has more in its name, or in its path from the artefact's folder; file systems allow 255 and 4,096.
_NAME_BYTES, _PATH_BYTES = 200, 1_000

_logger = logging.getLogger(__name__)


def read_manifest(folder: Path) -> dict:
    """The manifest of a published artefact.

    Raises:
        UnreadableArtefactError: it is there but may not be read.
        DamagedArtefactError: there is none, or it is not what this version writes.
    """
    path = folder / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DamagedArtefactError(f"{path}: expected a manifest, found none. {_REMEDY}") from None
    except PermissionError:
        raise unreadable(path) from None
    except OSError as error:
        raise DamagedArtefactError(f"{path}: not a manifest ({error!r}). {_REMEDY}") from None
    manifest = parse_manifest(content, path)
    try:
        for entry in manifest["files"]:
            name = Path(entry["name"])
            if any((folder / part).is_symlink() for part in (name, *name.parents[:-1])):
                raise _escape(path, entry["name"])
    except PermissionError as error:
        raise unreadable(Path(error.filename)) from None
    return manifest


def parse_manifest(content: bytes, place: str | Path, *, remedy: str = "") -> dict:
    """A manifest's bytes as data, from whomever they are.

    Args:
        content: the bytes.
        place: where they were found, for the error.
        remedy: what to do where they are none; "": rebuild the artefact.

    Raises:
        DamagedArtefactError: it is not what this version writes, or a file's name leads out of the folder.
    """
    remedy = remedy or _REMEDY
    try:
        manifest = json.loads(content)
        recorded = manifest["fingerprint"], manifest["schema_version"], manifest["seal"]
        files = [(entry["name"], entry["bytes"], entry["sha256"]) for entry in manifest["files"]]
        expected = fingerprint(manifest["identity"]), SCHEMA_VERSION, seal(manifest)
        # What everybody behind this relies on.
        if not isinstance(manifest["identity"], dict):
            raise ValueError(f"identity: expected an object, got {manifest['identity']!r:.80}")
        if datetime.fromisoformat(manifest["created_at"]).tzinfo is None:
            raise ValueError(f"created_at: expected a date with its time zone, got {manifest['created_at']!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedArtefactError(f"{place}: not a manifest ({error!r}). {remedy}") from None
    if recorded != expected:
        raise DamagedArtefactError(
            f"{place}: expected fingerprint, schema and seal {expected}, got {recorded}. {remedy}"
        )
    for name, num_bytes, sha256 in files:
        if not _stays_inside(name):
            raise _escape(place, name)
        if not _is_a_name(name):
            raise DamagedArtefactError(f"{place}: lists a name that no file of ours has, {name!r:.80}. {remedy}")
        if type(num_bytes) is not int or num_bytes < 0 or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise DamagedArtefactError(f"{place}: expected bytes and sha256 of {name}, got {num_bytes!r}, {sha256!r}.")
    if len({Path(name) for name, _, _ in files}) != len(files):
        raise DamagedArtefactError(f"{place}: lists a file twice. {remedy}")
    return manifest


def seal(manifest: Mapping) -> str:
    """Digest of all the manifest says: a bit that flips in it must not turn ``dataset_verified`` true."""
    return fingerprint({key: value for key, value in manifest.items() if key != "seal"})


def check_files(folder: Path, manifest: Mapping, *, shared: bool = False) -> None:
    """Cheap check: the files listed are there, as they were written; others are named in a warning unless ``shared``.

    A file of the recorded size, inode and modification time is taken to be as it was written. One that was touched,
    edited or copied is digested: its content counts, not its time. What was digested is remembered (verified.py).

    Raises:
        UnreadableArtefactError: names the first file that is there but may not be read.
        DamagedArtefactError: names the first file that is missing or changed.
    """
    verified, digested = read_verified(folder), {}
    for entry, status in _found(folder, manifest, shared=shared):
        name = entry["name"]
        stamp = stamp_of(status, entry["sha256"])
        as_published = all(value == entry.get(part) for part, value in _stamp(status).items())
        if not as_published and verified.get(name) != stamp:
            _check_digest(folder / name, entry["sha256"], _digest_of_stamp(folder / name, **stamp))
            digested[name] = stamp
    if digested:
        write_verified(folder, verified | digested)


def check_contents(folder: Path, manifest: Mapping, *, shared: bool = False) -> None:
    """Whole check: as ``check_files``, but the sha256 of every file, whatever its stamps say.

    Raises:
        The same as ``check_files``.
    """
    for entry, _ in _found(folder, manifest, shared=shared):
        path = folder / entry["name"]
        try:
            _check_digest(path, entry["sha256"], sha256_of(path))
        except DamagedArtefactError:
            # Bits that rotted in place leave the time as it was: move it, so that the cheap check digests from now on.
            with contextlib.suppress(OSError):
                os.utime(path)
            raise


def unexpected_files(folder: Path, listed: Container[str]) -> list[Path]:
    """Files in an artefact's folder that are not the artefact's: a note, an editor's backup, .DS_Store."""
    others = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    names = ((path, path.relative_to(folder).as_posix()) for path in others)
    return [
        path
        for path, name in names
        if name not in listed and name not in (MANIFEST_NAME, FETCHED_NAME) and not is_about_verification(name)
    ]


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
    manifest["seal"] = seal(manifest)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


@contextlib.contextmanager
def publishing(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """A temporary folder that becomes ``final`` when the block ends well, and vanishes when it does not.

    Files in a folder that is replaced, and that were no files of its artefact, are in the new one too.

    Raises:
        StorageError: ``bytes_needed`` are not free, or the disk fails on the way; names path, cause and bytes.
    """
    with _temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _keep_unexpected(final, temporary)
        _flush(temporary)
        _take_place(temporary, final)


@contextlib.contextmanager
def publishing_in_place(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """As ``publishing``, for files at a stable path that people may have open or keep others beside.

    Each file replaces its namesake by one rename, the manifest last: no moment without a whole file of each name.
    """
    with _temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _flush(temporary)
        final.mkdir(exist_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
            os.replace(path, final / path.name)
        _sync(final)


def discard(folder: Path) -> None:
    """Remove an artefact, or a folder of them, by one rename: no moment in which a part of it is there."""
    aside = _temporary_name(folder)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_artefact(folder: Path) -> bool:
    """Remove an artefact as ``discard`` does, unless it holds unexpected files: then it stays, and they are named.

    Returns:
        Whether it is gone.
    """
    with contextlib.suppress(DamagedArtefactError):
        if found := unexpected_files(folder, {entry["name"] for entry in read_manifest(folder)["files"]}):
            names = ", ".join(str(path.relative_to(folder)) for path in found)
            _logger.warning(
                "%s: not removed, it holds unexpected files: %s. Move them elsewhere, or remove the folder yourself.",
                *(folder, names),
            )
            return False
    discard(folder)
    return True


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_REMEDY = 'Run "make pipeline" to rebuild it.'


@contextlib.contextmanager
def _temporary_folder(final: Path, bytes_needed: int) -> Iterator[Path]:
    temporary = _temporary_name(final)
    require_space(final.parent, bytes_needed)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
    except PipelineError:
        raise
    except Exception as error:
        cause = storage_cause(error, final.parent, bytes_needed)
        if cause is None:
            raise
        # What was written so far is part of what is free once it is gone, and of what is needed.
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error(cause, final.parent, bytes_needed) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.{os.getpid()}.tmp")


def _describe(folder: Path, path: Path, extra: Mapping) -> dict:
    name = path.relative_to(folder).as_posix()
    return {"name": name, **_stamp(path.stat()), "sha256": sha256_of(path), **extra.get(name, {})}


def _stamp(status: os.stat_result) -> dict[str, int]:
    """What tells a file that was left alone; a rename, by which artefacts are published, keeps all of it."""
    return {"bytes": status.st_size, "inode": status.st_ino, "mtime_ns": status.st_mtime_ns}


def _found(folder: Path, manifest: Mapping, *, shared: bool) -> Iterator[tuple[Mapping, os.stat_result]]:
    """Entry and status of every file listed, each there, readable and of the size it should have."""
    if not shared:
        for path in unexpected_files(folder, {entry["name"] for entry in manifest["files"]}):
            _warn_of_unexpected(path)
    for entry in manifest["files"]:
        path = folder / entry["name"]
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            status = None
        except PermissionError:
            raise unreadable(path) from None
        if status is None or not stat.S_ISREG(status.st_mode):
            raise DamagedArtefactError(f"{path}: manifest lists {entry['bytes']} bytes, found no file. {_REMEDY}")
        if status.st_size != entry["bytes"]:
            raise DamagedArtefactError(
                f"{path}: manifest lists {entry['bytes']} bytes, found {status.st_size}. {_REMEDY}"
            )
        if not os.access(path, os.R_OK):
            raise unreadable(path)
        yield entry, status


@cache
def _warn_of_unexpected(path: Path) -> None:
    """Once in a process: a run checks its artefacts several times."""
    _logger.warning("%s: unexpected file, left alone: the manifest lists no such file", path)


def unreadable(path: Path) -> UnreadableArtefactError:
    """The error for what is there but may not be read."""
    return UnreadableArtefactError(
        f"{path}: cannot be read (Permission denied). Let this user read it (chmod u+rwX, or chown), or remove it to "
        "have it rebuilt."
    )


@cache
def _digest_of_stamp(path: Path, **stamp: object) -> str:
    """Digest a file once in a process as long as its stamp stays as it is."""
    return sha256_of(path)


def _check_digest(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise DamagedArtefactError(f"{path}: manifest lists sha256 {expected[:12]}…, found {found[:12]}…. {_REMEDY}")


def _stays_inside(name: object) -> bool:
    if not isinstance(name, str) or "\0" in name:
        return False
    parts = Path(name).parts
    return bool(parts) and ".." not in parts and not Path(name).is_absolute()


def _is_a_name(name: str) -> bool:
    """Whether it can be a file's and be shown: printable, which lone surrogates are not, and not too long."""
    if not name.isprintable() or len(name.encode()) > _PATH_BYTES:
        return False
    return all(len(part.encode()) <= _NAME_BYTES for part in Path(name).parts)


def _escape(place: str | Path, name: object) -> DamagedArtefactError:
    return DamagedArtefactError(f"{place}: refuses the file name {name!r}, it leads out of the folder.")


def _keep_unexpected(old: Path, new: Path) -> None:
    """Give what is unexpected in a folder that is about to be replaced a place in the one that replaces it.

    A file gets a second name, not another: whoever is killed here has lost nothing. Where the old manifest cannot be
    read, all that the new folder has no place for is taken for unexpected: what lies in a folder that both have, like
    TensorBoard's files, which are named by the time, was the artefact's own.
    """
    try:
        kept = _unexpected(old, {entry["name"] for entry in read_manifest(old)["files"]})
    except DamagedArtefactError:
        own = {path.name for path in new.iterdir() if path.is_dir()}
        kept = [path for path in _unexpected(old, ()) if path.relative_to(old).parts[0] not in own]
    for path in kept:
        place = new / path.relative_to(old)
        if os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            place.mkdir()
            continue
        try:
            os.link(path, place, follow_symlinks=False)
        except OSError:
            # Not every file system has links.
            shutil.copy2(path, place, follow_symlinks=False)


def _unexpected(folder: Path, listed: Collection[str]) -> list[Path]:
    """The unexpected files, and the empty folders that are in none of the artefact's own."""
    own = {name.partition("/")[0] for name in listed if "/" in name}
    folders = [path for path in sorted(folder.rglob("*")) if path.is_dir() and not path.is_symlink()]
    empty = [path for path in folders if not any(path.iterdir()) and path.relative_to(folder).parts[0] not in own]
    return unexpected_files(folder, listed) + empty


def _take_place(temporary: Path, final: Path) -> None:
    """Publish ``temporary`` as ``final``; a folder already there is removed afterwards.

    Where two folders cannot be exchanged in one step, the old one is set aside first.
    """
    aside = temporary.with_name(temporary.name + ".old")
    if not exchange(temporary, final):
        with contextlib.suppress(FileNotFoundError):
            os.rename(final, aside)
        os.rename(temporary, final)
    _sync(final.parent)
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(aside, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Force every file and folder below ``folder`` to disk: a rename must not outrun the bytes it publishes."""
    for path in [*sorted(folder.rglob("*")), folder]:
        # Not where a link leads, nor a pipe, which opens for nobody.
        if stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            _sync(path)


def _sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # By itself it does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)
