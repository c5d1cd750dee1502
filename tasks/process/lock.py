"""A lock of the storage root by ``flock``, so that one run at a time uses it.

Workers that Luigi forks inherit the open file and the lock. The lock is free when the last of them has ended. ``lockf``
is not inherited, and filelock's FileLock closes its file in a forked child. The process with the lock may remove the
unfinished work of killed runs.
"""

import fcntl
import logging
import os
import re
import shutil
import socket
from pathlib import Path
from typing import TextIO

from pipeline.artifacts import layout
from pipeline.artifacts.publish import retire
from pipeline.errors import BusyError, StorageError

LOCK_NAME = ".lock"

# Folders with unfinished work. The root contains that of the report.
_KINDS = (*layout.KINDS, layout.CHECKPOINTS, *layout.PAST_KINDS)
_REPORTS = (layout.DATED_REPORTS, f"{layout.DATED_REPORTS}/*")
_PLACES = (".", *_KINDS, f"{layout.CHECKPOINTS}/*", layout.DETERMINISM, *_REPORTS)
# Folders of publish.publishing, of the Beam job, of the command doctor and of repeated training.
_UNFINISHED = re.compile(r"\.(?P<artifact>.+)\.\d+\.tmp(?P<replaced>\.old)?|\.(?:notes|drawn|reach|again)-\w+")

_logger = logging.getLogger(__name__)
# Open for the life of the process.
_held: dict[Path, TextIO] = {}


def hold(root: Path, *, on_busy: str) -> None:
    """Take the lock of a storage root for the rest of this process. Further calls change nothing.

    BusyError: Another process has the lock, and ``on_busy`` is not ``wait``.
    """
    if root in _held:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Not truncated: it names the holder.
        file = (root / LOCK_NAME).open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = (root / LOCK_NAME).read_text(encoding="utf-8").strip() or "unknown"
            if on_busy != "wait":
                file.close()
                raise BusyError(
                    f"{root}: in use by process {holder} or its workers. Run the command again later, or pass "
                    "--Storage-on-busy wait to wait for it."
                ) from None
            _logger.info("%s: in use by process %s or its workers. Waiting until they end.", root, holder)
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise StorageError(
            f"{root}: cannot be written ({error.strerror}). Set [Storage] root to a writable folder."
        ) from error
    _held[root] = file
    file.truncate(0)
    file.write(f"{os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    clear_away(root)


def clear_away(root: Path) -> None:
    """Remove unfinished work, but no other hidden files.

    If the replacement of an artifact was interrupted, the old artifact is restored.
    """
    for folder in (found for place in _PLACES for found in root.glob(f"{place}/.*")):
        name = _UNFINISHED.fullmatch(folder.name)
        if not name or not folder.is_dir() or folder.is_symlink():
            continue
        artifact = folder.with_name(name["artifact"] or folder.name)
        if name["replaced"] and not artifact.exists():
            _logger.info("Restoring %s, which a killed run was replacing.", artifact)
            os.rename(folder, artifact)
            continue
        _logger.info("Removing %s, the unfinished work of a killed run.", folder)
        if name["replaced"]:
            retire(folder, artifact)
        else:
            shutil.rmtree(folder)
