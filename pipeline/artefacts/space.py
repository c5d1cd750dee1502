"""Free disk space: checked before work starts, and stated when it runs out."""

import errno
import os
import shutil
from pathlib import Path

from pipeline.errors import StorageError

# Writes fail if less is free. Libraries that write by themselves do not always report the cause.
_FULL_BYTES = 1_000_000

_REMEDY = "Free some space, or set [Storage] root to a writable folder with enough of it."


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raise a StorageError if fewer bytes are free for ``folder``, which need not exist yet."""
    free = free_bytes(folder)
    if free < bytes_needed:
        raise StorageError(f"{folder}: needs {_megabytes(bytes_needed)}, {_megabytes(free)} are free. {_REMEDY}")


def used_bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 if there is none."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def free_bytes(folder: Path) -> int:
    """Free bytes of the file system of ``folder``, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def is_storage_failure(error: BaseException | None, folder: Path) -> bool:
    """Whether an error comes from the disk: it names a path in the folder, or the disk is full.

    Call it before the files that were written so far are removed.
    """
    if free_bytes(folder) < _FULL_BYTES:
        return True
    while error is not None:
        if isinstance(error, OSError):
            names = (os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes))
            if error.errno == errno.EDQUOT or any(Path(name).is_relative_to(folder) for name in names):
                return True
        error = error.__cause__ or error.__context__
    return False


def storage_error(error: BaseException, folder: Path, bytes_needed: int) -> StorageError:
    """The error for people: the file, the cause, the bytes needed and those free now."""
    file, cause = getattr(error, "filename", None), getattr(error, "strerror", None) or str(error)
    cause = f"{cause}: {file}" if file else cause
    needed = f"about {_megabytes(bytes_needed)} are needed, " if bytes_needed else ""
    free = _megabytes(free_bytes(folder))
    return StorageError(f"{folder}: cannot be written ({cause}): {needed}{free} are free. {_REMEDY}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
