"""One run at a time on one storage root: an operating-system lock, taken before the first stage that has work to do.

The lock belongs to the process, so one that crashed blocks nobody; its file holds the holder's process id, for those
who find it taken. Whoever holds the lock may clear away what killed runs left unfinished: nobody else is at work.
"""

import logging
import os
import re
import shutil
import socket
from pathlib import Path

import fasteners

from pipeline.errors import BusyError, StorageError
from tasks.storage import Storage, root_folder

LOCK_NAME = ".lock"

# Where unfinished work lies (the report's in the root itself) and how it is called: by manifest.publishing after the
# artefact and the process, and by what the records' job notes of its blocks.
_PLACES = (".", "source", "records", "runs", "checkpoints", "checkpoints/*", "exports", "report/history")
_UNFINISHED = re.compile(r"\..+\.\d+\.tmp(\.old)?|\.notes-\w+")

_logger = logging.getLogger(__name__)
# Kept for the life of the process; workers that Luigi forks from it inherit the knowledge that it is theirs.
_held: dict[Path, fasteners.InterProcessLock] = {}


def hold() -> None:
    """Take the lock of the storage root for the rest of this process; further calls change nothing.

    Raises:
        BusyError: another process holds it and ``[Storage] on_busy`` is ``leave``; names its process id.
        StorageError: the root cannot be written.
    """
    root = root_folder()
    if root in _held:
        return
    lock = fasteners.InterProcessLock(root / LOCK_NAME)
    try:
        root.mkdir(parents=True, exist_ok=True)
        taken = lock.acquire(blocking=False) or _wait(lock, root)
    except OSError as error:
        raise StorageError(
            f"{root}: cannot be written ({error.strerror}). Set [Storage] root to a writable folder."
        ) from error
    if not taken:
        raise BusyError(
            f"{root}: in use by process {_holder(root)}. Wait until it is done, or let runs wait by themselves with "
            "[Storage] on_busy = wait or --Storage-on-busy wait."
        )
    _held[root] = lock
    lock.lockfile.truncate(0)
    lock.lockfile.write(f"{os.getpid()} on {socket.gethostname()}\n")
    lock.lockfile.flush()
    clear_away(root)


def _wait(lock: fasteners.InterProcessLock, root: Path) -> bool:
    if Storage().on_busy != "wait":
        return False
    _logger.info("%s: in use by process %s, waiting", root, _holder(root))
    return lock.acquire(blocking=True)


def _holder(root: Path) -> str:
    return (root / LOCK_NAME).read_text(encoding="utf-8").strip() or "unknown"


def clear_away(root: Path) -> None:
    """Remove unfinished work, and nothing else that begins with a dot: the root may hold what is not ours."""
    for folder in (found for place in _PLACES for found in root.glob(f"{place}/.*")):
        if folder.is_dir() and not folder.is_symlink() and _UNFINISHED.fullmatch(folder.name):
            _logger.info("clearing away %s, left by a run that was killed", folder)
            shutil.rmtree(folder)
