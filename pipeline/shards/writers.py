"""Writers: three ways from the records of a block to the bytes of the shards. All write the same bytes.

- ``FixedWriter`` puts records of one length at their final position in a shared folder.
- ``RunWriter`` sorts each block's records into a file, a *run*. After all blocks it merges the runs shard by shard.
- ``StoreWriter`` does the same with objects, for workers that share no file system.

A block or shard that is written twice has the same bytes.
"""

import hashlib
import itertools
import operator
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.artefacts.space import require_space
from pipeline.errors import DamagedArtefactError, message
from pipeline.remote.artefacts import receive
from pipeline.shards.plan import Block, Job, file_name
from pipeline.shards.shared import THREADS, Shared, SharedObjects, replacing

#: Framed records (uint8 (batch, frame_bytes) if they have one length), and int64 (batch, 2): shard and place of each.
Batch = tuple[Sequence[bytes] | np.ndarray, np.ndarray]
#: A split of the source, and the number of a shard among those that the split is divided into.
ShardId = tuple[str, int]

# Examples per block. Large, because TFDS's files can only be read from their beginning.
BLOCK_EXAMPLES = 25_000
# A block that becomes a run is held in memory.
BLOCK_BYTES = 64 * 2**20
# A merge reads and writes this much at a time.
_CHUNK_BYTES = 64 * 2**20
# Of an entry in a run's table or index: two int64.
_ENTRY_BYTES = 16
# Records that wait for each other, so that a shard is opened once for many. Small, because memory that is touched for
# the first time costs more than opening files.
_PENDING_BYTES = 16 * 2**20
_NOTE_BYTES = 4_096
#: Folder of the notes on finished shards.
NOTES = "shards"


class Writer(ABC):
    """A way of writing the shards of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @abstractmethod
    def block_examples(self) -> int:
        """Examples per block."""

    def prepare(self) -> None:  # noqa: B027
        """Called once before the job, in the process that submits it."""

    @abstractmethod
    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """Write the records of a block, on a worker."""

    def shards(self) -> list[ShardId]:
        """The shards that ``write_shard`` has to write after all blocks."""
        return []

    def write_shard(self, which: ShardId) -> str:
        """Write a shard on a worker. Return its name."""
        raise NotImplementedError

    def collect(self, scratch: Path) -> None:  # noqa: B027
        """Called once after the job, in the process that submitted it: bring all shards into the job's folder."""


class FixedWriter(Writer):
    """Puts records of one length at their final position in shards that have their final length from the start."""

    def block_examples(self) -> int:
        """See ``Writer``."""
        return BLOCK_EXAMPLES

    def prepare(self) -> None:
        """See ``Writer``."""
        for source_split in self.job.source.num_examples:
            frame_bytes = self.job.frame_bytes(source_split)
            for shard in self.job.shards(*self.job.splits_of(source_split)):
                with Path(self.job.folder, shard["name"]).open("wb") as file:
                    file.truncate(shard["num_records"] * frame_bytes)

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """See ``Writer``."""
        paths = [Path(self.job.folder, shard["name"]) for shard in self.job.shards(*self.job.splits_of(block[0]))]
        pending, pending_bytes = [], 0
        for frames, places in batches:
            pending.append((frames, places))
            pending_bytes += frames.nbytes
            if pending_bytes >= _PENDING_BYTES:
                _put(paths, pending)
                pending, pending_bytes = [], 0
        _put(paths, pending)


def _put(paths: Sequence[Path], pending: Sequence[Batch]) -> None:
    """Write batches shard by shard: there may be more shards than a process may open."""
    rows = sorted(
        (shard, place, batch, row)
        for batch, (_, places) in enumerate(pending)
        for row, (shard, place) in enumerate(places.tolist())
    )
    for shard, group in itertools.groupby(rows, key=operator.itemgetter(0)):
        file = os.open(paths[shard], os.O_WRONLY)
        try:
            for _, place, batch, row in group:
                frame = pending[batch][0][row]
                _write_all(file, frame, place * len(frame))
        finally:
            os.close(file)


def _write_all(file: int, content: np.ndarray, offset: int) -> None:
    """Positioned writes. Pages of a memory map would count as this process's memory, and a full disk kills it."""
    written = os.pwrite(file, content, offset)
    while written < len(content):
        written += os.pwrite(file, content[written:], offset + written)


class RunWriter(Writer):
    """Sorts each block's records by shard and place into a run, and merges the runs shard by shard."""

    def block_examples(self) -> int:
        """See ``Writer``."""
        job = self.job
        each = max(map(job.frame_bytes, job.source.num_examples)) if job.is_fixed else job.source.bytes_per_example
        return max(1, min(BLOCK_EXAMPLES, BLOCK_BYTES // max(1, each)))

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """See ``Writer``."""
        frames, places = [], []
        for batch, where in batches:
            frames.extend(batch)
            places.append(where)
        num_shards = len(self.job.shards(*self.job.splits_of(block[0])))
        self.job.shared.write(_run_name(block), encode_run(frames, np.concatenate(places), num_shards))

    def shards(self) -> list[ShardId]:
        """See ``Writer``."""
        return [
            (source_split, number)
            for source_split in self.job.source.num_examples
            for number in range(len(self.job.shards(*self.job.splits_of(source_split))))
        ]

    def write_shard(self, which: ShardId) -> str:
        """See ``Writer``."""
        name = self._shard(which)["name"]
        # The temporary file is removed with the job, also after a worker was killed.
        with replacing(Path(self.job.folder, name), Path(str(self.job.shared))) as path, path.open("wb") as file:
            file.writelines(self._merged(which))
        return name

    def _shard(self, which: ShardId) -> dict:
        source_split, number = which
        return self.job.shards(*self.job.splits_of(source_split))[number]

    def _merged(self, which: ShardId) -> Iterator[bytes]:
        shard, runs = self._shard(which), [*map(_run_name, self.job.blocks(which[0]))]
        return merge_runs(self.job.shared, runs, which[1], shard["num_records"], shard["name"])


class StoreWriter(RunWriter):
    """Keeps runs and shards in an object store. A shard is named by its sha256, as the remote names files."""

    def write_shard(self, which: ShardId) -> str:
        """See ``Writer``."""
        job, name, content = self.job, self._shard(which)["name"], b"".join(self._merged(which))
        digest = hashlib.sha256(content).hexdigest()
        # Also if the object exists: it may be damaged, or about to be removed as garbage.
        job.shared.objects.put(f"{job.shared.files}/{digest}", content)
        job.shared.write(f"{NOTES}/{name}", f"{digest} {len(content)}".encode())
        return name

    def collect(self, scratch: Path) -> None:
        """See ``Writer``."""
        job, digests, sizes = self.job, {}, {}
        for shard in job.shards(*job.splits()):
            try:
                digest, size = noted_shard(job.shared, shard["name"])
            except FileNotFoundError:
                raise RuntimeError(lost_by_runner("shard", shard["name"])) from None
            digests[shard["name"]], sizes[digest] = digest, size
        require_space(Path(job.folder), sum(sizes.values()))
        receive(job.shared.objects, job.shared.files, sizes, scratch, "fetch shards")
        placed: dict[str, Path] = {}
        for name, digest in digests.items():
            path = Path(job.folder, name)
            # Equal shards, such as empty ones, share an object.
            if digest in placed:
                shutil.copyfile(placed[digest], path)
            else:
                os.replace(scratch / digest, path)
                placed[digest] = path


@message
def lost_by_runner(kind: str, which: object) -> str:
    """The error that Beam's runner lost a block or a shard."""
    return f"Beam ended the job without the {kind} {which}"


def writer_of(job: Job) -> Writer:
    """The writer for the records and the shared storage of a job."""
    if isinstance(job.shared, SharedObjects):
        return StoreWriter(job)
    return FixedWriter(job) if job.is_fixed else RunWriter(job)


def noted_shard(shared: Shared, name: str) -> tuple[str, int]:
    """The sha256 and the bytes of a shard in the store, from the note of its writer."""
    note = re.fullmatch(rb"([0-9a-f]{64}) ([0-9]{1,15})", shared.read(f"{NOTES}/{name}", at_most=_NOTE_BYTES))
    if not note:
        raise DamagedArtefactError(
            f"{shared}/{NOTES}/{name}: expected sha256 and bytes of a shard, found something else. "
            "Who else writes to [Storage] remote?"
        )
    return note[1].decode(), int(note[2])


def encode_run(frames: Sequence[bytes | np.ndarray], places: np.ndarray, num_shards: int) -> bytes:
    """A run: framed records in the order of shard and place, which are int64 (records, 2).

    It begins with int64 (num_shards + 1, 2): the number of records before each shard's section, and the section's
    offset. A section consists of int64 (records, 2), the place and length of each record, and the records.
    """
    order = np.lexsort((places[:, 1], places[:, 0]))
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    bounds = np.searchsorted(places[order, 0], np.arange(num_shards + 1)).tolist()
    sections: list[bytes | np.ndarray] = []
    offsets = [_ENTRY_BYTES * (num_shards + 1)]
    for first, stop in itertools.pairwise(bounds):
        rows = order[first:stop]
        index = np.stack([places[rows, 1], lengths[rows]], axis=1).astype("<i8").tobytes()
        sections += [index, *(frames[row] for row in rows.tolist())]
        offsets.append(offsets[-1] + len(index) + int(lengths[rows].sum()))
    table = np.stack([bounds, offsets], axis=1).astype("<i8")
    return b"".join([table.tobytes(), *sections])


def merge_runs(shared: Shared, runs: Sequence[str], shard: int, num_records: int, name: str) -> Iterator[bytes]:
    """The bytes of a shard, from the named runs.

    Raises:
        ValueError: the runs do not contain each of its records once.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        entries = np.concatenate([*pool.map(partial(_entries, shared, shard), runs, itertools.count())])
        entries = entries[np.argsort(entries[:, 0], kind="stable")]
        if not np.array_equal(entries[:, 0], np.arange(num_records)):
            raise ValueError(f"{name}: expected {num_records} records, each once, found {len(entries)}")
        chunks = np.cumsum(entries[:, 1]) // _CHUNK_BYTES
        for chunk in np.split(entries, np.flatnonzero(np.diff(chunks)) + 1):
            yield b"".join(_read(shared, runs, chunk, pool))


def _entries(shared: Shared, shard: int, run: str, number: int) -> np.ndarray:
    """Place, length, offset and run number of each record of a shard in one run: int64 (records, 4)."""
    entry = np.frombuffer(shared.read_range(run, _ENTRY_BYTES * shard, 2 * _ENTRY_BYTES), "<i8")
    num_records, start = int(entry[2] - entry[0]), int(entry[1])
    index = np.frombuffer(shared.read_range(run, start, _ENTRY_BYTES * num_records), "<i8").reshape(-1, 2)
    places, lengths = index.T
    offsets = start + index.nbytes + np.cumsum(lengths) - lengths
    return np.stack([places, lengths, offsets, np.full(num_records, number)], axis=1)


def _read(shared: Shared, runs: Sequence[str], entries: np.ndarray, pool: ThreadPoolExecutor) -> list[memoryview]:
    """The records of consecutive entries of a shard. In each run they are consecutive too."""
    records = [memoryview(b"")] * len(entries)

    def read(number: int) -> None:
        rows = np.flatnonzero(entries[:, 3] == number)
        stops = np.cumsum(entries[rows, 1]).tolist()
        content = memoryview(shared.read_range(runs[number], int(entries[rows[0], 2]), stops[-1]))
        if len(content) != stops[-1]:
            raise ValueError(f"{runs[number]}: expected {stops[-1]} bytes, found {len(content)}")
        for row, start, stop in zip(rows.tolist(), [0, *stops], stops, strict=False):
            records[row] = content[start:stop]

    list(pool.map(read, np.unique(entries[:, 3]).tolist()))
    return records


def _run_name(block: Block) -> str:
    return f"runs/{file_name(block)}.run"
