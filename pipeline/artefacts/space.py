"""Free disk space: asked for before work starts, and recognised as the cause when it runs out on the way.

Beside the data's way; what manifest.publishing uses.
"""

import errno
import os
import re
import shutil
from pathlib import Path

from pipeline.errors import StorageError

# The disk's or the folder's fault, where the error names a path below the folder.
_CAUSES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EIO,
    errno.ENAMETOOLONG,
)
# With so little free a write fails; that it failed for want of space, it says without a path.
_FULL_BYTES = 1_000_000

_REMEDY = "Free some space, or set [Storage] root to a writable folder with enough of it."


def require_space(folder: Path, bytes_needed: int) -> None:
    """Refuse to begin what cannot be finished.

    Args:
        folder: where it is to be written; need not exist yet.
        bytes_needed: the most it takes at one time.

    Raises:
        StorageError: fewer bytes are free; names the folder and both numbers.
    """
    free = free_bytes(folder)
    if free < bytes_needed:
        raise StorageError(f"{folder}: needs {_megabytes(bytes_needed)}, {_megabytes(free)} are free. {_REMEDY}")


def used_bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 where there is none."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def free_bytes(folder: Path) -> int:
    """Bytes an ordinary user may still write to the file system that holds, or will hold, ``folder``."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def storage_cause(error: BaseException | None, folder: Path, bytes_needed: int) -> str | None:
    """The operating system's words, if the disk under ``folder`` is what ``error`` comes from; else None.

    Decided by the path that an error names, however deep in the chain of causes: a file elsewhere, or a connection
    that is refused, is no matter of storage. To be asked before what was written so far is removed.
    """
    is_full = free_bytes(folder) < max(bytes_needed, _FULL_BYTES)
    while error is not None and not isinstance(error, StorageError):
        for cause in _CAUSES:
            # Libraries that write by themselves (TensorFlow, safetensors) pass on the words and not the number.
            if getattr(error, "errno", None) == cause or os.strerror(cause) in str(error):
                lacks_space = cause == errno.EDQUOT or (cause == errno.ENOSPC and is_full)
                if _names(error, folder) or (lacks_space and not _paths(error)):
                    return os.strerror(cause)
        error = error.__cause__ or error.__context__
    return None


def storage_error(cause: str, folder: Path, bytes_needed: int) -> StorageError:
    """The error for people: what ``storage_cause`` found, the bytes needed and those free now."""
    needed = f"about {_megabytes(bytes_needed)} are needed, " if bytes_needed else ""
    return StorageError(
        f"{folder}: cannot be written ({cause}): {needed}{_megabytes(free_bytes(folder))} are free. {_REMEDY}"
    )


def _names(error: BaseException, folder: Path) -> bool:
    """Whether the error is about ``folder`` or a path below it: by its own paths, or by its text if it has none."""
    if paths := _paths(error):
        return any(path.is_relative_to(folder) for path in paths)
    return re.search(rf"{re.escape(str(folder))}(?![\w.-])", str(error)) is not None


def _paths(error: BaseException) -> list[Path]:
    given = (getattr(error, name, None) for name in ("filename", "filename2"))
    return [Path(os.fsdecode(path)) for path in given if isinstance(path, str | bytes | os.PathLike)]


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
