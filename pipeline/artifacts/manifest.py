"""Manifests: the identity of an artifact, and name, bytes and sha256 of its files.

An artifact is a folder. Its ``manifest.json`` is the commit point and is written last (publish.py). Folders without a
valid manifest are ignored. A manifest is untrusted: no name in it may lead out of the artifact's folder.
"""

import contextlib
import json
import logging
import os
import re
import stat
from collections.abc import Container, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.stamps import (
    current_stamp,
    is_about_verification,
    read_verified,
    sha256_of,
    write_verified,
)
from pipeline.errors import DamagedArtifactError, UnreadableArtifactError

MANIFEST_NAME = "manifest.json"
# Beside the manifest of an artifact that came from a remote, and no part of the artifact.
FETCHED_NAME = "fetched.json"
SCHEMA_VERSION = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
# No file of ours has more in its name, or in its path from the artifact's folder; file systems allow 255 and 4,096.
_NAME_BYTES, _PATH_BYTES = 200, 1_000
_REMEDY = 'Run "make pipeline" to rebuild it.'

_logger = logging.getLogger(__name__)


def read_manifest(folder: Path) -> dict:
    """The manifest of a published artifact.

    Raises:
        UnreadableArtifactError: it exists but this user may not read it.
        DamagedArtifactError: there is none, or it is not what this version writes.
    """
    path = folder / MANIFEST_NAME
    try:
        manifest = parse_manifest(path.read_bytes(), path)
        names = [Path(entry["name"]) for entry in manifest["files"]]
        linked = [name for name in names if any((folder / part).is_symlink() for part in (name, *name.parents[:-1]))]
    except PermissionError as error:
        raise unreadable(Path(error.filename)) from None
    except OSError as error:
        found = "none" if isinstance(error, FileNotFoundError) else repr(error)
        raise DamagedArtifactError(f"{path}: expected a manifest, found {found}. {_REMEDY}") from None
    if linked:
        raise DamagedArtifactError(f"{path}: refuses the file name {linked[0]}, it leads out of the folder.")
    return manifest


def parse_manifest(content: bytes, place: str | Path, *, remedy: str = _REMEDY) -> dict:
    """Check and return the data of a manifest; ``place`` and ``remedy`` are for the error.

    Raises:
        DamagedArtifactError: it is not what this version writes, or a file's name leads out of the folder.
    """
    try:
        manifest = json.loads(content)
        problem = _problem(manifest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"not a manifest ({error!r})"
    if problem:
        raise DamagedArtifactError(f"{place}: {problem}. {remedy}")
    return manifest


def _problem(manifest: Mapping) -> str:
    """The first thing that is wrong with a manifest, or an empty string."""
    if not isinstance(manifest["identity"], dict):
        return f"identity: expected an object, got {manifest['identity']!r:.80}"
    recorded = manifest["fingerprint"], manifest["schema_version"], manifest["seal"]
    expected = fingerprint(manifest["identity"]), SCHEMA_VERSION, seal(manifest)
    if recorded != expected:
        return f"expected fingerprint, schema and seal {expected}, got {recorded}"
    if datetime.fromisoformat(manifest["created_at"]).tzinfo is None:
        return f"created_at: expected a date with its time zone, got {manifest['created_at']!r}"
    for entry in manifest["files"]:
        name, num_bytes, sha256 = entry["name"], entry["bytes"], entry["sha256"]
        if not isinstance(name, str) or not Path(name).parts or ".." in Path(name).parts or Path(name).is_absolute():
            return f"refuses the file name {name!r}, it leads out of the folder"
        # Lone surrogates are not printable.
        if not name.isprintable() or not _is_short(name.encode()):
            return f"lists a name that no file of ours has, {name!r:.80}"
        if type(num_bytes) is not int or num_bytes < 0 or not _SHA256.fullmatch(sha256):
            return f"expected bytes and sha256 of {name}, got {num_bytes!r}, {sha256!r}"
    if len({Path(entry["name"]) for entry in manifest["files"]}) != len(manifest["files"]):
        return "lists a file twice"
    return ""


def _is_short(name: bytes) -> bool:
    return len(name) <= _PATH_BYTES and all(len(part) <= _NAME_BYTES for part in name.split(b"/"))


def seal(manifest: Mapping) -> str:
    """Digest of all that the manifest states: a bit that flips in it must not turn ``dataset_verified`` true."""
    return fingerprint({key: value for key, value in manifest.items() if key != "seal"})


def check_files(folder: Path, manifest: Mapping, *, shared: bool = False) -> None:
    """Cheap check: the listed files exist and are unchanged; stray files are logged unless ``shared``.

    A file is digested if its stamp in ``verified.json`` does not fit: its content counts, not its time.

    Raises:
        UnreadableArtifactError: names the first file that exists but may not be read.
        DamagedArtifactError: names the first file that is missing or changed.
    """
    verified = read_verified(folder)
    stamps = dict(verified)
    for entry in _present(folder, manifest, shared=shared):
        name = entry["name"]
        stamps[name] = current_stamp(folder / name, verified.get(name))
        _check_digest(folder / name, entry["sha256"], stamps[name]["sha256"])
    if stamps != verified:
        write_verified(folder, stamps)


def check_contents(folder: Path, manifest: Mapping, *, shared: bool = False) -> None:
    """Whole check: as ``check_files``, but it digests every file. It raises the same errors."""
    for entry in _present(folder, manifest, shared=shared):
        path = folder / entry["name"]
        try:
            _check_digest(path, entry["sha256"], sha256_of(path))
        except DamagedArtifactError:
            # Bits that rotted in place leave the times as they were. Change them, so that the cheap check digests too.
            with contextlib.suppress(OSError):
                os.utime(path)
            raise


def stray_files(folder: Path, listed: Container[str]) -> list[Path]:
    """Files in an artifact's folder that are not the artifact's: a note, an editor's backup, .DS_Store."""
    others = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    names = ((path, path.relative_to(folder).as_posix()) for path in others)
    return [
        path
        for path, name in names
        if name not in listed and name not in (MANIFEST_NAME, FETCHED_NAME) and not is_about_verification(name)
    ]


def write_manifest(folder: Path, *, stage: str, identity: Mapping, details: Mapping) -> dict:
    """Write and return the manifest of all files in ``folder``.

    ``details`` is merged in at the top level. Its ``files``, name → extra fields, are merged into the entries of files.
    """
    extra = details.get("files", {})
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not is_about_verification(path.name)]
    names = [path.relative_to(folder).as_posix() for path in paths]
    stamps = {name: current_stamp(folder / name, None) for name in names}
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "stage": stage,
        "fingerprint": fingerprint(identity),
        "identity": identity,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **{key: value for key, value in details.items() if key != "files"},
        "files": [
            {"name": name, "bytes": stamp["bytes"], "sha256": stamp["sha256"], **extra.get(name, {})}
            for name, stamp in stamps.items()
        ],
    }
    manifest["seal"] = seal(manifest)
    # A source has stamped the files of its dataset here.
    write_verified(folder, read_verified(folder) | stamps)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def write_fetched(folder: Path, *, remote: str) -> None:
    """Note in an artifact's folder that it came from a remote."""
    note = {"remote": remote, "fetched_at": datetime.now(UTC).isoformat(timespec="seconds")}
    (folder / FETCHED_NAME).write_text(json.dumps(note) + "\n", encoding="utf-8")


def read_fetched(folder: Path) -> dict[str, str] | None:
    """``remote`` and ``fetched_at``; None if the artifact was made here."""
    try:
        note = json.loads((folder / FETCHED_NAME).read_bytes())
        return {name: str(note[name]) for name in ("remote", "fetched_at")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # A damaged note still shows that the artifact came from somewhere.
        return {"remote": "a remote", "fetched_at": ""}


def unreadable(path: Path) -> UnreadableArtifactError:
    """The error for a path that exists but may not be read."""
    return UnreadableArtifactError(
        f"{path}: cannot be read (Permission denied). Let this user read it (chmod u+rwX, or chown), or remove it to "
        "have it rebuilt."
    )


def _present(folder: Path, manifest: Mapping, *, shared: bool) -> Iterator[Mapping]:
    """Entry of every listed file, each checked to exist, to be readable and of the right size."""
    if not shared:
        for path in stray_files(folder, {entry["name"] for entry in manifest["files"]}):
            _warn_of_stray(path)
    for entry in manifest["files"]:
        path = folder / entry["name"]
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            status = None
        except PermissionError:
            raise unreadable(path) from None
        size = status.st_size if status and stat.S_ISREG(status.st_mode) else "no file"
        if size != entry["bytes"]:
            raise DamagedArtifactError(f"{path}: manifest lists {entry['bytes']} bytes, found {size}. {_REMEDY}")
        if not os.access(path, os.R_OK):
            raise unreadable(path)
        yield entry


@cache
def _warn_of_stray(path: Path) -> None:
    """Log a file once per process, which checks its artifacts several times."""
    _logger.warning("%s: unexpected file, left alone: the manifest lists no such file", path)


def _check_digest(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise DamagedArtifactError(f"{path}: manifest lists sha256 {expected[:12]}…, found {found[:12]}…. {_REMEDY}")
