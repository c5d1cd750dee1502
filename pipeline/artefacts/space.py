"""Room on the disk: asked for before work starts, and recognised as the cause when it runs out on the way.

Beside the data's way; what manifest.publishing uses.
"""

import errno
import os
import shutil
from pathlib import Path

from pipeline.errors import StorageError

# The disk's or the folder's fault; any other error of the operating system is a defect of ours.
_CAUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EIO)
# Libraries that write by themselves (TensorFlow, h5py, safetensors) pass on the words and not the number.
_WORDS = tuple(os.strerror(cause) for cause in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))

_REMEDY = "Free some space, or set [Storage] root to a writable folder with room."


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


def free_bytes(folder: Path) -> int:
    """Bytes an ordinary user may still write to the file system that holds, or will hold, ``folder``."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def as_storage_error(error: BaseException, folder: Path, bytes_needed: int) -> StorageError | None:
    """What ``error`` means if the disk is its cause, however deep in the chain of causes; else None."""
    cause = _cause(error)
    if cause is None:
        return None
    needed = f"about {_megabytes(bytes_needed)} are needed, " if bytes_needed else ""
    return StorageError(
        f"{folder}: cannot be written ({cause}): {needed}{_megabytes(free_bytes(folder))} are free. {_REMEDY}"
    )


def _cause(error: BaseException | None) -> str | None:
    while error is not None and not isinstance(error, StorageError):
        if isinstance(error, OSError) and error.errno in _CAUSES:
            return os.strerror(error.errno)
        for words in _WORDS:
            if words in str(error):
                return words
        error = error.__cause__ or error.__context__
    return None


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
