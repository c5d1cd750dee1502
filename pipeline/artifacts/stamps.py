"""Stamps of digested files, so that an unchanged file is not read again.

The file ``verified.json`` next to the manifest contains the stamps. Stamps differ between machines, so the
manifest does not list the file.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

VERIFIED_NAME = "verified.json"

Stamp = Mapping[str, int | str]


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp_of(status: os.stat_result, sha256: str) -> Stamp:
    """Stamp of a file with this digest. Programs can set ``mtime_ns``, but not ``ctime_ns``."""
    return {
        "bytes": status.st_size,
        "inode": status.st_ino,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "sha256": sha256,
    }


def current_stamp(path: Path, cached: object, digest: Callable[[Path], str] = sha256_of) -> Stamp:
    """Current stamp of a file. ``digest`` reads the file only if ``cached`` is not the current stamp."""
    status = path.stat()
    if isinstance(cached, Mapping) and cached == stamp_of(status, str(cached.get("sha256"))):
        return cached
    return stamp_of(status, _digest_once(digest, path, tuple(stamp_of(status, "").items())))


def read_verified(folder: Path) -> dict[str, object]:
    """Stamps of the digested files of a folder, by name. Empty without a valid ``verified.json``."""
    try:
        stamps = json.loads((folder / VERIFIED_NAME).read_bytes())
    # RecursionError comes from deeply nested brackets.
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def write_verified(folder: Path, stamps: Mapping[str, object]) -> None:
    """Write the stamps atomically. A read-only disk is no error."""
    temporary = folder / f"{VERIFIED_NAME}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(stamps, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, folder / VERIFIED_NAME)


def is_about_verification(name: str) -> bool:
    """Whether a file of this name contains stamps, complete or not."""
    return re.fullmatch(rf"{re.escape(VERIFIED_NAME)}(\.\d+\.tmp)?", name) is not None


@cache
def _digest_once(digest: Callable[[Path], str], path: Path, stamp: tuple) -> str:
    return digest(path)
