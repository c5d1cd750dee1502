"""Storage that the workers of a job and the process that submitted it share: a folder or a part of an object store.

On a cluster they exchange nothing else but the small elements of the Beam job. Both kinds have the same methods. Both
are plain data, so that any runner can ship them.
"""

import contextlib
import errno
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from pipeline.errors import RemoteError
from pipeline.remote.objects import EXCHANGE, Objects

# The largest file of a job: a block's notes have 68 bytes per example, and as much again for text of 256 tokens.
_MAX_BYTES = 2**30
#: Requests at the same time.
THREADS = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Store:
    """The object store of [Storage] remote: its address, and the key prefix of the records' files."""

    url: str
    endpoint: str
    files: str

    @property
    def objects(self) -> Objects:
        """The store, opened once per process."""
        return _open_objects(self.url, self.endpoint)


@cache
def _open_objects(url: str, endpoint: str) -> Objects:
    return Objects(url, endpoint=endpoint)


@dataclass(frozen=True)
class SharedFolder:
    """A folder that all workers see at the same path."""

    folder: str

    #: Seconds between two looks at the progress.
    poll_seconds: ClassVar[float] = 0.5
    #: What to do if a worker cannot read here.
    remedy: ClassVar[str] = (
        "[Storage] root has to lie on a file system that all workers share, at the same path; where they share none, "
        "set [Records] workers_share = remote."
    )

    def __str__(self) -> str:
        return self.folder

    def read(self, name: str, *, at_most: int = _MAX_BYTES) -> bytes:
        """The content of a file. OSError if it does not exist, or is larger than ``at_most``."""
        path = Path(self.folder, name)
        if path.stat().st_size > at_most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return path.read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of a file."""
        with Path(self.folder, name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file atomically."""
        path = Path(self.folder, name)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)

    def names(self, folder: str) -> Iterator[str]:
        """The names of all files in a folder."""
        paths = Path(self.folder, folder).glob("[!.]*")
        yield from (path.relative_to(self.folder).as_posix() for path in paths)


@dataclass(frozen=True)
class SharedObjects:
    """Objects under a key of a store, with the methods of ``SharedFolder``. All of them may raise RemoteError."""

    store: Store
    key: str

    # Each look is one request or several.
    poll_seconds: ClassVar[float] = 5.0
    remedy: ClassVar[str] = (
        "Workers have to reach [Storage] remote, by the same remote_endpoint and with credentials in their "
        "environment; or the job has ended, and this is a late attempt at its work."
    )

    def __str__(self) -> str:
        return f"{self.store.url}/{self.key}"

    def read(self, name: str, *, at_most: int = _MAX_BYTES) -> bytes:
        """The content of an object. RemoteError if it is larger than ``at_most``."""
        found = self.store.objects.read(f"{self.key}/{name}", at_most=at_most)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", f"{self}/{name}")
        return found[0]

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        return self.store.objects.read_range(f"{self.key}/{name}", start, length) if length else b""

    def write(self, name: str, content: bytes) -> None:
        """Write or replace an object."""
        self.store.objects.put(f"{self.key}/{name}", content)

    def names(self, folder: str) -> Iterator[str]:
        """The names of all objects in a folder."""
        found = self.store.objects.list(f"{self.key}/{folder}")
        yield from (stored.key.removeprefix(f"{self.key}/") for stored in found)


Shared = SharedFolder | SharedObjects


def read_each(shared: Shared, names: Sequence[str]) -> Iterator[bytes]:
    """The content of each file in order. Several are read at the same time, because a store has a high latency."""
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(names), THREADS):
            yield from pool.map(shared.read, names[first : first + THREADS])


@contextlib.contextmanager
def shared_by_workers(folder: Path, store: Store | None) -> Iterator[Shared]:
    """The folder, which the caller removes, or with a store a new key in it, whose objects are removed at the end."""
    if store is None:
        yield SharedFolder(str(folder))
        return
    shared = SharedObjects(store, f"{EXCHANGE}/{uuid.uuid4().hex}")
    try:
        yield shared
    finally:
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(store.objects.delete, [stored.key for stored in store.objects.list(shared.key)]))
        except RemoteError as error:
            _logger.warning("left on the remote, for make clean-stale REMOTE=1: %s", error)


@contextlib.contextmanager
def replacing(path: Path, within: Path | None = None) -> Iterator[Path]:
    """A temporary path that replaces ``path`` at the end of the block. An engine may run the same work twice at a time.

    Args:
        path: the path to replace.
        within: a folder of the same file system for the temporary file, which stays if the process is killed. The
            default is the path's own folder.
    """
    temporary = (within or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    yield temporary
    os.replace(temporary, path)
