"""Storage that the workers of a job share with the process that submits it, a folder or a prefix of an object store.

On a cluster, they exchange nothing else except the small elements of the Beam job. Both kinds have the same methods and
are plain data, so that any runner can send them to its workers.
"""

import contextlib
import errno
import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from pipeline.artifacts.publish import replacing
from pipeline.errors import RemoteError
from pipeline.remote.objects import EXCHANGE, Objects

# Maximum size of an object that is read as a whole. The statistics of a block have 68 bytes per example, and twice as
# many for a text of 256 tokens.
_MAX_BYTES = 2**30
#: Number of concurrent requests.
THREADS = 16

_logger = logging.getLogger(__name__)
_objects = cache(Objects)


@dataclass(frozen=True)
class Store:
    """The object store of [Storage] remote, with its address and the key prefix of the records' files."""

    url: str
    endpoint: str
    files: str

    @property
    def objects(self) -> Objects:
        """The client of the store, created once per process."""
        return _objects(self.url, endpoint=self.endpoint)


@dataclass(frozen=True)
class SharedFolder:
    """A folder that all workers can access at the same path."""

    folder: str

    #: Seconds between two progress updates.
    poll_seconds: ClassVar[float] = 0.5
    #: Remedy if a worker cannot read the folder.
    remedy: ClassVar[str] = "Put [Storage] root on a shared file system, or set [Records] workers_share = remote."

    def __str__(self) -> str:
        return self.folder

    def read(self, name: str) -> bytes:
        """Read a file. OSError if it does not exist."""
        return Path(self.folder, name).read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Read a range of bytes of a file."""
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
        """Yield the names of all files in a folder."""
        yield from (f"{folder}/{path.name}" for path in Path(self.folder, folder).glob("[!.]*"))


@dataclass(frozen=True)
class SharedObjects:
    """Objects under a key prefix of a store, like ``SharedFolder``. All methods may raise RemoteError."""

    store: Store
    key: str

    # Each update takes one or more requests.
    poll_seconds: ClassVar[float] = 5.0
    remedy: ClassVar[str] = "Give all workers access to [Storage] remote, unless the job has already ended."

    def __str__(self) -> str:
        return f"{self.store.url}/{self.key}"

    def read(self, name: str) -> bytes:
        """Read an object. RemoteError if it is too large."""
        result = self.store.objects.read(f"{self.key}/{name}", at_most=_MAX_BYTES)
        if result is None:
            raise FileNotFoundError(errno.ENOENT, "object does not exist", f"{self}/{name}")
        return result[0]

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self.store.objects.read_range(f"{self.key}/{name}", start, length) if length else b""

    def write(self, name: str, content: bytes) -> None:
        self.store.objects.put(f"{self.key}/{name}", content)

    def names(self, folder: str) -> Iterator[str]:
        objects = self.store.objects.list(f"{self.key}/{folder}")
        yield from (stored.key.removeprefix(f"{self.key}/") for stored in objects)


Shared = SharedFolder | SharedObjects


def read_each(shared: Shared, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the content of each file in order. Files are read concurrently, because stores have a high latency."""
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(names), THREADS):
            yield from pool.map(shared.read, names[start : start + THREADS])


@contextlib.contextmanager
def shared_by_workers(folder: Path, store: Store | None) -> Iterator[Shared]:
    """Yield the folder, or a new key prefix of the store, whose objects are removed at the end."""
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
            _logger.warning('%s Run "tensorcraft clean-stale --remote --yes" to remove temporary objects.', error)
