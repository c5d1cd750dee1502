"""Manifests, which contain the identity of an artifact and the name, size and sha256 of its files.

An artifact is a folder. Its ``manifest.json`` is the commit point and is written last (publish.py). Folders without a
valid manifest are ignored. A manifest is untrusted data. No name in it may lead out of the artifact's folder.
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
from pipeline.artifacts.stamps import current_stamp, is_about_verification, read_verified, sha256_of, write_verified
from pipeline.errors import DamagedArtifactError, UnreadableArtifactError

MANIFEST_NAME = "manifest.json"
# Next to the manifest of a downloaded artifact. It does not belong to the artifact.
FETCHED_NAME = "fetched.json"
SCHEMA_VERSION = 1

_SHA256 = re.compile(r"[0-9a-f]{64}")
# Maximum bytes of a name, and of a path in the artifact's folder. File systems allow 255 and 4,096.
_NAME_BYTES, _PATH_BYTES = 200, 1_000
_REMEDY = 'Run "tensorcraft run" to rebuild it.'

_logger = logging.getLogger(__name__)


def read_manifest(folder: Path) -> dict:
    """Read the manifest of a published artifact. DamagedArtifactError: it is missing, invalid or unreadable."""
    path = folder / MANIFEST_NAME
    try:
        manifest = parse_manifest(path.read_bytes(), path)
        names = [Path(entry["name"]) for entry in manifest["files"]]
        linked = [name for name in names if any((folder / path).is_symlink() for path in (name, *name.parents[:-1]))]
    except PermissionError as error:
        raise unreadable(Path(error.filename)) from None
    except OSError as error:
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else repr(error)
        raise DamagedArtifactError(f"{path}: expected a manifest, but {reason}.", _REMEDY) from None
    if linked:
        raise DamagedArtifactError(f"{path}: the file name {linked[0]} leads out of the folder.", _REMEDY)
    return manifest


def parse_manifest(content: bytes, path: str | Path, *, remedy: str = _REMEDY) -> dict:
    """Parse and validate a manifest. The DamagedArtifactError of an invalid one contains ``path`` and ``remedy``."""
    try:
        manifest = json.loads(content)
        problem = _problem(manifest)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"not a manifest ({error!r})"
    if problem:
        raise DamagedArtifactError(f"{path}: {problem}.", remedy)
    return manifest


def _problem(manifest: Mapping) -> str:
    """Describe the first error of a manifest, or return an empty string."""
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
            return f"the file name {name!r} leads out of the folder"
        # Lone surrogates are not printable either, and cannot be encoded.
        encoded = name.encode() if name.isprintable() else b""
        if not 0 < len(encoded) <= _PATH_BYTES or max(map(len, encoded.split(b"/"))) > _NAME_BYTES:
            return f"expected printable file names of at most {_NAME_BYTES} bytes, got {name!r:.80}"
        if type(num_bytes) is not int or num_bytes < 0 or not _SHA256.fullmatch(sha256):
            return f"expected bytes and sha256 of {name}, got {num_bytes!r}, {sha256!r}"
    if len({Path(entry["name"]) for entry in manifest["files"]}) != len(manifest["files"]):
        return "a file is listed twice"
    return ""


def seal(manifest: Mapping) -> str:
    """Digest of the whole manifest, so that no flipped bit can set ``dataset_verified`` to true."""
    return fingerprint({key: value for key, value in manifest.items() if key != "seal"})


def check_files(folder: Path, manifest: Mapping) -> None:
    """Check that the listed files exist and are unchanged. DamagedArtifactError: One is missing, changed or unreadable.

    Stray files are logged. A file is digested only if its stamp differs from the one in ``verified.json``.
    """
    verified = read_verified(folder)
    stamps = dict(verified)
    for path, entry in _checked_entries(folder, manifest):
        stamps[entry["name"]] = current_stamp(path, verified.get(entry["name"]))
        _check_digest(path, entry["sha256"], stamps[entry["name"]]["sha256"])
    if stamps != verified:
        write_verified(folder, stamps)


def check_contents(folder: Path, manifest: Mapping) -> None:
    """Like ``check_files``, but digest every file."""
    for path, entry in _checked_entries(folder, manifest):
        try:
            _check_digest(path, entry["sha256"], sha256_of(path))
        except DamagedArtifactError:
            # Bit rot does not change the times of a file. A new time makes the cheap check digest it too.
            with contextlib.suppress(OSError):
                os.utime(path)
            raise


def stray_files(folder: Path, listed: Container[str]) -> list[Path]:
    """Files in an artifact's folder that the manifest does not list, such as a note or an editor's backup."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    names = ((path, path.relative_to(folder).as_posix()) for path in paths)
    return [
        path
        for path, name in names
        if name not in listed and name not in (MANIFEST_NAME, FETCHED_NAME) and not is_about_verification(name)
    ]


def write_manifest(folder: Path, *, stage: str, identity: Mapping, details: Mapping) -> dict:
    """Write and return the manifest of all files in ``folder``.

    ``details`` contains additional top-level fields. Its ``files`` maps the name of a file to additional fields of its
    entry.
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
    # The Source stage also stamps the files of its dataset here.
    write_verified(folder, read_verified(folder) | stamps)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def write_fetched(folder: Path, *, remote: str) -> None:
    """Record in an artifact's folder the remote that it was downloaded from."""
    record = {"remote": remote, "fetched_at": datetime.now(UTC).isoformat(timespec="seconds")}
    (folder / FETCHED_NAME).write_text(json.dumps(record) + "\n", encoding="utf-8")


def read_fetched(folder: Path) -> dict[str, str] | None:
    """``remote`` and ``fetched_at`` of a downloaded artifact. None if the artifact was built here."""
    try:
        record = json.loads((folder / FETCHED_NAME).read_bytes())
        return {name: str(record[name]) for name in ("remote", "fetched_at")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # The artifact was downloaded, even if the record is damaged.
        return {"remote": "a remote", "fetched_at": ""}


def unreadable(path: Path) -> UnreadableArtifactError:
    """The error for a path that this user may not read."""
    return UnreadableArtifactError(
        f"{path}: permission denied. Allow this user to read it (chmod u+rwX, or chown), or remove it to rebuild it."
    )


def _checked_entries(folder: Path, manifest: Mapping) -> Iterator[tuple[Path, Mapping]]:
    """Yield path and entry of every listed file, after a check that it exists, is readable and has the right size."""
    # People may keep files in the folder of the report.
    if manifest.get("stage") != "Report":
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
            raise DamagedArtifactError(f"{path}: expected {entry['bytes']} bytes, got {size}.", _REMEDY)
        if not os.access(path, os.R_OK):
            raise unreadable(path)
        yield path, entry


@cache
def _warn_of_stray(path: Path) -> None:
    """Log each file once per process."""
    _logger.warning("%s: ignored, because the manifest does not list this file", path)


def _check_digest(path: Path, expected: str, actual: str) -> None:
    if actual != expected:
        raise DamagedArtifactError(f"{path}: expected sha256 {expected[:12]}…, got {actual[:12]}….", _REMEDY)
