"""Publishes an artifact atomically: a temporary folder, flushed to disk, takes the place of the old one by a rename.

A replaced folder that contains files of somebody else is renamed to ``<name>.kept-<time>``, so that nothing is lost. If
the process is killed between the two renames, the lock's ``clear_away`` puts the old folder back. Free disk space is
checked before work starts, and stated when it runs out.
"""

import contextlib
import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.artifacts.layout import KEPT
from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest, stray_files
from pipeline.artifacts.stamps import VERIFIED_NAME, stamp_of, write_verified
from pipeline.errors import DamagedArtifactError, PipelineError, StorageError, causes

# Writes fail if less is free. Libraries that write by themselves do not always report the cause.
_FULL_BYTES = 1_000_000
_REMEDY = "Free some space, or set [Storage] root to a writable folder with enough of it."

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def publishing(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """A temporary folder that becomes ``final`` if the block ends well, and is removed otherwise.

    Raises:
        StorageError: ``bytes_needed`` are not free, or the disk fails; names path, cause and bytes.
    """
    with _temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _flush(temporary)
        aside = temporary.with_name(f"{temporary.name}.old")
        if final.is_dir():
            # Left by this process where a replaced folder could not be removed.
            retire(aside, final)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.rename(final, aside)
            os.rename(temporary, final)
        except BaseException:
            # The old one stays where there is no new one.
            with contextlib.suppress(OSError):
                os.rename(aside, final)
            raise
        _sync(final.parent)
        retire(aside, final)


@contextlib.contextmanager
def publishing_in_place(final: Path, *, bytes_needed: int = 0) -> Iterator[Path]:
    """As ``publishing``, but each file replaces the one of its name by a rename, the manifest last.

    It is for a folder that people may have open, or in which they keep files of their own.
    """
    with _temporary_folder(final, bytes_needed) as temporary:
        yield temporary
        _flush(temporary)
        final.mkdir(exist_ok=True)
        (temporary / VERIFIED_NAME).unlink(missing_ok=True)
        for path in sorted(temporary.iterdir(), key=lambda path: path.name == MANIFEST_NAME):
            os.replace(path, final / path.name)
        _sync(final)
        # A rename changes the stamp of a file.
        files = read_manifest(final)["files"]
        write_verified(temporary, {one["name"]: stamp_of((final / one["name"]).stat(), one["sha256"]) for one in files})
        with contextlib.suppress(FileNotFoundError):
            os.replace(temporary / VERIFIED_NAME, final / VERIFIED_NAME)


def retire(old: Path, final: Path) -> None:
    """Remove the folder that ``final`` replaced; if it contains files of somebody else, rename it instead."""
    if not old.is_dir() or not (stray := _files_of_others(old, final)):
        shutil.rmtree(old, ignore_errors=True)
        return
    kept = final.with_name(f"{final.name}{KEPT}{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}")
    os.rename(old, kept)
    names = ", ".join(path.relative_to(old).as_posix() for path in stray[:5])
    _logger.warning("%s: rebuilt, its earlier folder contains other files (%s) and is kept: %s", final, names, kept)


def discard(folder: Path) -> None:
    """Remove an artifact, or a folder of them, by one rename: no reader sees a part of it."""
    aside = _temporary_name(folder)
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_artifact(folder: Path) -> bool:
    """Remove an artifact by ``discard``. If it contains stray files, log them instead and return False."""
    with contextlib.suppress(DamagedArtifactError):
        if stray := stray_files(folder, _listed(folder)):
            names = ", ".join(str(path.relative_to(folder)) for path in stray)
            _logger.warning(
                "%s: not removed, it holds unexpected files: %s. Move them elsewhere, or remove the folder yourself.",
                *(folder, names),
            )
            return False
    discard(folder)
    return True


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


def storage_error(error: BaseException, folder: Path, bytes_needed: int) -> StorageError:
    """The error for people: the file, the cause, the bytes needed and those free now."""
    file, cause = getattr(error, "filename", None), getattr(error, "strerror", None) or str(error)
    cause = f"{cause}: {file}" if file else cause
    needed = f"about {_megabytes(bytes_needed)} are needed, " if bytes_needed else ""
    free = _megabytes(free_bytes(folder))
    return StorageError(f"{folder}: cannot be written ({cause}): {needed}{free} are free. {_REMEDY}")


def _is_storage_failure(error: BaseException, folder: Path) -> bool:
    """Whether an error comes from the disk: it names a path in the folder, or the disk is full."""
    if free_bytes(folder) < _FULL_BYTES:
        return True
    for one in causes(error):
        if isinstance(one, OSError):
            names = (os.fsdecode(name) for name in (one.filename, one.filename2) if isinstance(name, str | bytes))
            if one.errno == errno.EDQUOT or any(Path(name).is_relative_to(folder) for name in names):
                return True
    return False


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


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
        if not _is_storage_failure(error, final.parent):
            raise
        # The message states what is free without the files written so far.
        shutil.rmtree(temporary, ignore_errors=True)
        raise storage_error(error, final.parent, bytes_needed) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.{os.getpid()}.tmp")


def _listed(folder: Path) -> set[str]:
    return {entry["name"] for entry in read_manifest(folder)["files"]}


def _files_of_others(old: Path, final: Path) -> list[Path]:
    """Stray files of a replaced folder; if its manifest is damaged, those that its successor has no place for."""
    try:
        return stray_files(old, _listed(old))
    except DamagedArtifactError:
        stray = stray_files(old, {path.relative_to(final).as_posix() for path in final.rglob("*")})
        # In a folder of its logs, TensorBoard names files by the time, after the same word.
        ours = {_folder_and_word(path, final) for path in final.rglob("*")}
        return [path for path in stray if path.parent == old or _folder_and_word(path, old) not in ours]


def _folder_and_word(path: Path, artifact: Path) -> tuple[Path, str]:
    return path.parent.relative_to(artifact), path.name.partition(".")[0]


def _flush(folder: Path) -> None:
    """Force every file and folder below ``folder`` to disk: a rename must not outrun the bytes it publishes."""
    for path in [*sorted(folder.rglob("*")), folder]:
        # Neither the target of a link nor a pipe, which would block.
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
