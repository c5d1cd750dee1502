"""One run at a time on one storage root: an operating-system lock, taken before the first stage that has work to do.

The lock belongs to the open file, which workers that Luigi forks inherit: it is free when the last of them has ended,
however that came, so a run that crashed blocks nobody, and one whose workers outlive it keeps others out. That is
``flock``: ``lockf`` is not inherited, and filelock's FileLock closes its file in a forked child. The file holds the
holder's process id, for those who find it taken. Whoever holds the lock may clear away what killed runs left
unfinished: nobody else is at work.
"""

import fcntl
import logging
import os
import re
import shutil
import socket
from pathlib import Path
from typing import TextIO

import psutil

from pipeline.artefacts import layout
from pipeline.artefacts.publish import retire
from pipeline.errors import BusyError, StorageError

LOCK_NAME = ".lock"

# Where unfinished work lies (the report's in the root itself) and how it is called: by publish.publishing after the
# artefact and the process, and by what the records' job notes of its blocks, make doctor of a cluster's workers, and
# what is trained again.
_PLACES = (
    ".",
    *(layout.SOURCE, layout.RECORDS, layout.RUNS, layout.CHECKPOINTS, f"{layout.CHECKPOINTS}/*"),
    *(layout.EXPORTS, layout.DETERMINISM),
    *(layout.DATED_REPORTS, f"{layout.DATED_REPORTS}/*"),
)
_UNFINISHED = re.compile(r"\.(?P<artefact>.+)\.\d+\.tmp(?P<replaced>\.old)?|\.(?:notes|drawn|reach|again)-\w+")

_logger = logging.getLogger(__name__)
# Open for the life of the process; workers that Luigi forks from it inherit the file, and that it is theirs.
_held: dict[Path, TextIO] = {}


def hold(root: Path, *, on_busy: str) -> None:
    """Take the lock of a storage root for the rest of this process; further calls change nothing.

    Args:
        root: the folder.
        on_busy: "leave", or "wait" until another process has released it.

    Raises:
        BusyError: another process holds it and ``on_busy`` is ``leave``; names its process id.
        StorageError: the root cannot be written.
    """
    if root in _held:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Not truncated: it names the holder.
        file = (root / LOCK_NAME).open("a", encoding="utf-8")
        taken = _is_free(file) or (on_busy == "wait" and _wait(file, root))
    except OSError as error:
        raise StorageError(
            f"{root}: cannot be written ({error.strerror}). Set [Storage] root to a writable folder."
        ) from error
    if not taken:
        file.close()
        raise BusyError(
            f"{root}: in use by {_holder(root)}. Wait until it is done, or let runs wait by themselves with "
            "[Storage] on_busy = wait or --Storage-on-busy wait."
        )
    _held[root] = file
    file.truncate(0)
    file.write(f"{os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    clear_away(root)


def _is_free(file: TextIO) -> bool:
    """Whether the lock was free; then it is ours."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(file: TextIO, root: Path) -> bool:
    """Until the lock is ours."""
    _logger.info("%s: in use by %s, waiting", root, _holder(root))
    fcntl.flock(file, fcntl.LOCK_EX)
    return True


def _holder(root: Path) -> str:
    written = (root / LOCK_NAME).read_text(encoding="utf-8").strip() or "unknown"
    process, _, host = written.partition(" on ")
    if process.isdigit() and host == socket.gethostname() and not psutil.pid_exists(int(process)):
        return f"a worker of process {written}, which has ended"
    return f"process {written}"


def clear_away(root: Path) -> None:
    """Remove unfinished work, and nothing else that begins with a dot: the root may hold what is not ours.

    An artefact that was set aside for one that never took its place is put back.
    """
    for folder in (found for place in _PLACES for found in root.glob(f"{place}/.*")):
        name = _UNFINISHED.fullmatch(folder.name)
        if not name or not folder.is_dir() or folder.is_symlink():
            continue
        artefact = folder.with_name(name["artefact"] or folder.name)
        if name["replaced"] and not artefact.exists():
            _logger.info("putting back %s, set aside by a run that was killed", artefact)
            os.rename(folder, artefact)
            continue
        _logger.info("clearing away %s, left by a run that was killed", folder)
        if name["replaced"]:
            retire(folder, artefact)
        else:
            shutil.rmtree(folder)
