"""Verified stamps: which files of an artefact were digested where it lies now, so that it need not be done again.

Beside the data's way; what manifest.check_files uses. A manifest holds the stamps of the files as they were published;
in a copy of the artefact they are others. Those go into a file beside the manifest, which is part of neither manifest
nor fingerprint: without it, or where it cannot be read or written, files are digested. An entry counts only where size,
inode and both times of the file are as it says, and the digest is that of the manifest.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

VERIFIED_NAME = "verified.json"


def stamp_of(status: os.stat_result, sha256: str) -> dict[str, int | str]:
    """The entry of a file; the time of its last change, unlike that of its content, cannot be set by a program."""
    return {
        "bytes": status.st_size,
        "inode": status.st_ino,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "sha256": sha256,
    }


def read_verified(folder: Path) -> dict[str, object]:
    """File → stamp, of the files that were verified in this folder; empty where nothing is known."""
    try:
        stamps = json.loads((folder / VERIFIED_NAME).read_bytes())
    # RecursionError: brackets nested without end.
    except (OSError, ValueError, RecursionError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def write_verified(folder: Path, stamps: Mapping[str, object]) -> None:
    """Remember the stamps, all at once; on a disk that cannot be written they are not remembered."""
    temporary = folder / f"{VERIFIED_NAME}.{os.getpid()}.tmp"
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(stamps, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, folder / VERIFIED_NAME)


def is_about_verification(name: str) -> bool:
    """Whether a file of this name in an artefact's folder is the stamps', finished or not."""
    return re.fullmatch(rf"{re.escape(VERIFIED_NAME)}(\.\d+\.tmp)?", name) is not None
