"""Atomic publishing of artifacts.

Files are written to a temporary folder, flushed to disk and renamed. A replaced folder that contains unexpected files
is renamed to ``<name>.kept-<time>``, so that no file is lost. If the process is killed between two renames, the lock's
``clear_away`` restores the old folder. Free disk space is checked before the work starts.
"""

import contextlib
import errno
import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from pipeline.artifacts.layout import KEPT
from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest, stray_files
from pipeline.errors import DamagedArtifactError, PipelineError, StorageError, causes

# With less free disk space, writes fail. Not every library reports the cause.
_FULL_BYTES = 1_000_000
_REMEDY = "Free some disk space, or set [Storage] root to a writable folder with enough space."

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def publishing(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """Yield a temporary folder, and rename it to ``final`` if the block succeeds. Otherwise remove it.

    StorageError: Less than ``bytes_needed`` are free, or the disk fails.
    """
    with temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _flush(temporary)
        old = temporary.with_name(f"{temporary.name}.old")
        if final.is_dir():
            # A folder that this process could not remove before.
            retire(old, final)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rename(final, old)
            os.rename(temporary, final)
        except BaseException:
            # Restore the old folder if the new one was not published.
            with contextlib.suppress(OSError):
                os.rename(old, final)
            raise
        _sync(final.parent)
        retire(old, final)


@contextlib.contextmanager
def replacing(path: Path, within: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` at the end. Several processes may do so at once.

    The temporary file is ``within`` a folder of the same file system, by default that of ``path``.
    """
    temporary = (within or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    yield temporary
    os.replace(temporary, path)


@contextlib.contextmanager
def publishing_in_place(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """Like ``publishing``, but rename the files one by one into ``final``, the manifest last.

    The folder itself stays, because people may have it open or keep their own files in it.
    """
    with temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _flush(temporary)
        final.mkdir(exist_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
            os.replace(path, final / path.name)
        _sync(final)


def retire(old: Path, final: Path) -> None:
    """Remove the folder that ``final`` replaced. If it contains unexpected files, rename it instead."""
    if not old.is_dir() or not (stray := _stray_files_of_replaced(old, final)):
        shutil.rmtree(old, ignore_errors=True)
        return
    kept = final.with_name(f"{final.name}{KEPT}{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}")
    os.rename(old, kept)
    names = ", ".join(path.relative_to(old).as_posix() for path in stray[:5])
    _logger.warning("%s: the replaced folder contains unexpected files (%s) and is now %s", final, names, kept)


def discard(folder: Path) -> None:
    """Remove a folder. It is renamed first, so that no reader finds an incomplete artifact."""
    temporary = _temporary_name(folder)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def remove_artifact(folder: Path) -> bool:
    """Remove an artifact. If it contains stray files, log them instead and return False."""
    with contextlib.suppress(DamagedArtifactError):
        if stray := stray_files(folder, _listed(folder)):
            names = ", ".join(str(path.relative_to(folder)) for path in stray)
            remedy = "Move them, or remove the folder yourself."
            _logger.warning("%s: not removed, because it contains unexpected files (%s). %s", folder, names, remedy)
            return False
    discard(folder)
    return True


def require_space(folder: Path, bytes_needed: int) -> None:
    """Raise a StorageError if fewer than ``bytes_needed`` are free. The folder need not exist yet."""
    if (free := free_bytes(folder)) < bytes_needed:
        needed = f"{_megabytes(bytes_needed)} are needed, but only {_megabytes(free)} are free"
        raise StorageError(f"{folder}: {needed}. {_REMEDY}")


def used_bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder. 0 if the path does not exist."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def free_bytes(folder: Path) -> int:
    """Free bytes of the folder's file system. The folder need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def storage_error(error: BaseException, folder: Path, bytes_needed: int) -> StorageError:
    """The error with the file, the cause, the bytes needed and the bytes free now."""
    file, cause = getattr(error, "filename", None), getattr(error, "strerror", None) or str(error)
    cause = f"{cause}: {file}" if file else cause
    needed = f"About {_megabytes(bytes_needed)} are needed, " if bytes_needed else ""
    free = _megabytes(free_bytes(folder))
    return StorageError(f"{folder}: cannot be written ({cause}). {needed}{free} are free. {_REMEDY}")


def _is_storage_failure(error: BaseException, folder: Path) -> bool:
    """Whether the disk is full, or an error names a path in the folder."""
    errors = [cause for cause in causes(error) if isinstance(cause, OSError)]
    names = [name for cause in errors for name in (cause.filename, cause.filename2) if isinstance(name, str | bytes)]
    is_here = any(Path(os.fsdecode(name)).is_relative_to(folder) for name in names)
    return is_here or free_bytes(folder) < _FULL_BYTES or any(cause.errno == errno.EDQUOT for cause in errors)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@contextlib.contextmanager
def temporary_folder(final: Path, bytes_needed: int) -> Iterator[Path]:
    """Yield an empty folder next to ``final``, and remove it afterwards. StorageError: as for ``publishing``."""
    temporary = _temporary_name(final)
    require_space(final.parent, bytes_needed)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
    except PipelineError:
        raise
    except Exception as error:
        if not _is_storage_failure(error, final.parent):
            raise
        # The message states the free space without the files written so far.
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error(error, final.parent, bytes_needed) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.{os.getpid()}.tmp")


def _listed(folder: Path) -> set[str]:
    return {entry["name"] for entry in read_manifest(folder)["files"]}


def _stray_files_of_replaced(old: Path, final: Path) -> list[Path]:
    """Stray files of a replaced folder. If its manifest is damaged, files that its successor does not have."""
    try:
        return stray_files(old, _listed(old))
    except DamagedArtifactError:
        stray = stray_files(old, {path.relative_to(final).as_posix() for path in final.rglob("*")})
        # TensorBoard names files by a prefix and the time.
        expected = {_folder_and_prefix(path, final) for path in final.rglob("*")}
        return [path for path in stray if path.parent == old or _folder_and_prefix(path, old) not in expected]


def _folder_and_prefix(path: Path, artifact: Path) -> tuple[Path, str]:
    return path.parent.relative_to(artifact), path.name.partition(".")[0]


def _flush(folder: Path) -> None:
    """Force every file and folder below ``folder`` to disk, so that the rename comes after the bytes."""
    for path in [*sorted(folder.rglob("*")), folder]:
        # Neither links nor pipes. Opening a pipe would block.
        if stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            _sync(path)


def _sync(path: Path) -> None:
    """Force a file or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # The error of os.fsync does not contain the path.
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)
