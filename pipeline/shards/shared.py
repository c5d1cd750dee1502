"""Shared: small files that workers and the submitting process leave for each other (the shards' aid).

On a cluster they see nothing else of one another. Where they share a file system that is a folder of it; where they do
not it is an object store, which then has the shards too (shuffled.py).
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
from pipeline.shards.whole import replacing

# Notes of a block: 44 bytes an example, twice that as JSON.
_MOST_BYTES = 2**30
_AT_ONCE = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Store:
    """An object store that workers hand on shards by: its address, and the key below which the records' files lie."""

    url: str
    endpoint: str
    files: str


@dataclass(frozen=True)
class SharedFolder:
    """A folder that all of them see at the same path; plain data, so that any runner can ship it."""

    folder: str

    #: What to do where a worker cannot read there.
    remedy: ClassVar[str] = (
        "[Storage] root has to lie on a file system that all workers share, at the same path; where they share none, "
        "set [Records] workers_share = remote."
    )

    def __str__(self) -> str:
        return self.folder

    def read(self, name: str, *, at_most: int = _MOST_BYTES) -> bytes:
        """The content of a file.

        Raises:
            OSError: it is not there, or larger than ``at_most``.
        """
        path = Path(self.folder, name)
        if path.stat().st_size > at_most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return path.read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Leave a file, whole or not at all; one that is there is replaced."""
        path = Path(self.folder, name)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(content)

    def names(self, prefix: str) -> Iterator[str]:
        """The files that are there whose names begin so."""
        found = Path(self.folder).glob(f"{prefix}*")
        yield from (path.relative_to(self.folder).as_posix() for path in found if not path.name.startswith("."))


@dataclass(frozen=True)
class SharedObjects:
    """The same as objects under a key of a store, which may not answer, or refuse (RemoteError).

    ``files`` is the key below which the records' files lie, by their sha256.
    """

    url: str
    endpoint: str
    key: str
    files: str

    remedy: ClassVar[str] = (
        "Workers have to reach [Storage] remote, by the same remote_endpoint and with credentials in their "
        "environment; or the job has ended, and this is a late attempt at its work."
    )

    def __str__(self) -> str:
        return f"{self.url}/{self.key}"

    @property
    def objects(self) -> Objects:
        """The store; opened once in a process."""
        return _opened(self.url, self.endpoint)

    def read(self, name: str, *, at_most: int = _MOST_BYTES) -> bytes:
        """See SharedFolder; RemoteError also where it is larger than ``at_most``."""
        found = self.objects.read(f"{self.key}/{name}", at_most=at_most)
        if found is None:
            raise FileNotFoundError(2, "there is no such object", f"{self}/{name}")
        return found[0]

    def write(self, name: str, content: bytes) -> None:
        """See SharedFolder."""
        self.objects.put(f"{self.key}/{name}", content)

    def names(self, prefix: str) -> Iterator[str]:
        """See SharedFolder."""
        start = f"{self.key}/"
        # A store lists by whole folders, or by letters.
        folder = f"{self.key}/{prefix}".rpartition("/")[0]
        found = (stored.key.removeprefix(start) for stored in self.objects.list(folder))
        yield from (name for name in found if name.startswith(prefix))

    def clear(self) -> None:
        """Remove all that was left under the key.

        Raises:
            RemoteError: the store does not answer, or refuses.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(self.objects.delete, [stored.key for stored in self.objects.list(self.key)]):
                pass


Shared = SharedFolder | SharedObjects


def read_each(shared: Shared, names: Sequence[str]) -> Iterator[bytes]:
    """The content of each of these files, in their order; some are read at once, for a store takes its time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(names), _AT_ONCE):
            yield from pool.map(shared.read, names[first : first + _AT_ONCE])


def shared_by_workers(folder: Path, store: Store | None) -> Shared:
    """The folder, or where there is a store a place of a job's own in it."""
    if store is None:
        return SharedFolder(str(folder))
    return SharedObjects(store.url, store.endpoint, f"{EXCHANGE}/{uuid.uuid4().hex}", store.files)


@contextlib.contextmanager
def left_clear(shared: Shared) -> Iterator[None]:
    """Clear objects away at the end of the block; what cannot be is the store's garbage. A folder is its caller's."""
    try:
        yield
    finally:
        if isinstance(shared, SharedObjects):
            try:
                shared.clear()
            except RemoteError as error:
                _logger.warning("left on the remote, for make clean-stale REMOTE=1: %s", error)


@cache
def _opened(url: str, endpoint: str) -> Objects:
    return Objects(url, endpoint=endpoint)
