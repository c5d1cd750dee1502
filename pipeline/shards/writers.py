"""Writers: three ways from the records of a block to the bytes of the shards. All write the same bytes.

- ``FixedWriter`` puts records of one length at their final position in a shared folder.
- ``Writer`` sorts each block's records into a file, a *run*. After all blocks it merges the runs shard by shard.
- ``StoreWriter`` does the same with objects, for workers that share no file system.

A block or shard that is written twice has the same bytes.
"""

import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.artifacts.publish import require_space
from pipeline.errors import DamagedArtifactError, EngineUnavailableError
from pipeline.remote.artifacts import receive
from pipeline.shards.plan import Block, Job, block_file
from pipeline.shards.shared import THREADS, Shared, SharedObjects, replacing

#: Framed records (uint8 (batch, frame_bytes) if they have one length), and int64 (batch, 2): shard and place of each.
Batch = tuple[Sequence[bytes] | np.ndarray, np.ndarray]
#: A split of the source, and the number of a shard among those that the split is divided into.
ShardId = tuple[str, int]

# Examples per block. Large, because TFDS's files can only be read from their beginning.
BLOCK_EXAMPLES = 25_000
BLOCK_BYTES = 64 * 2**20
# A merge reads and writes this much at a time.
_CHUNK_BYTES = 64 * 2**20
# Of an entry in a run's table or index: two int64.
_ENTRY_BYTES = 16
# Records that wait for each other, so that a shard is opened once for many. Small, because memory that is touched for
# the first time costs more than opening files.
_PENDING_BYTES = 16 * 2**20
_NOTE_BYTES = 4_096
#: Folders of the runs and of the notes on finished shards.
RUNS, NOTES = "runs", "shards"


class Writer:
    """Sorts each block's records by shard and place into a run, and merges the runs shard by shard."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def block_examples(self) -> int:
        """Examples per block. A block that becomes a run is held in memory."""
        job = self.job
        each = job.layout("train").frame_bytes if job.is_fixed else job.source.bytes_per_example
        return max(1, min(BLOCK_EXAMPLES, BLOCK_BYTES // max(1, each)))

    def prepare(self) -> None:
        """Called once before the job, in the process that submits it."""

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """Write the records of a block, on a worker."""
        frames, places = _joined([*batches])
        num_shards = len(self.job.shards_of(block[0]))
        self.job.shared.write(block_file(RUNS, block), encode_run(frames, places, num_shards))

    def shards(self) -> list[ShardId]:
        """The shards that ``write_shard`` has to write after all blocks."""
        return [(split, n) for split in self.job.source.num_examples for n in range(len(self.job.shards_of(split)))]

    def write_shard(self, which: ShardId) -> str:
        """Write a shard on a worker. Return its name."""
        name, content = self._merged(which)
        # The temporary file is removed with the job, also after a worker was killed.
        with replacing(Path(self.job.folder, name), Path(str(self.job.shared))) as path, path.open("wb") as file:
            file.writelines(content)
        return name

    def _merged(self, which: ShardId) -> tuple[str, Iterator[bytes]]:
        """Name and content of a shard."""
        source_split, number = which
        shard = self.job.shards_of(source_split)[number]
        runs = [block_file(RUNS, block) for block in self.job.blocks(source_split)]
        return shard["name"], merge_runs(self.job.shared, runs, number, shard["num_records"], shard["name"])

    def collect(self, scratch: Path) -> None:
        """Called once after the job, in the process that submitted it: bring all shards into the job's folder."""


class FixedWriter(Writer):
    """Puts records of one length at their final position in shards that have their final length from the start."""

    def block_examples(self) -> int:
        """Examples per block, of any length."""
        return BLOCK_EXAMPLES

    def prepare(self) -> None:
        """Create the shards."""
        for source_split in self.job.source.num_examples:
            for shard in self.job.shards_of(source_split):
                with Path(self.job.folder, shard["name"]).open("wb") as file:
                    file.truncate(shard["num_records"] * self.job.layout(source_split).frame_bytes)

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """Write the records of a block, on a worker."""
        paths = [Path(self.job.folder, shard["name"]) for shard in self.job.shards_of(block[0])]
        pending: list[Batch] = []
        for batch in batches:
            pending.append(batch)
            if sum(frames.nbytes for frames, _ in pending) >= _PENDING_BYTES:
                _put(paths, *_joined(pending))
                pending = []
        if pending:
            _put(paths, *_joined(pending))

    def shards(self) -> list[ShardId]:
        """None: the blocks are the shards."""
        return []


class StoreWriter(Writer):
    """Keeps runs and shards in an object store. A shard is named by its sha256, as the remote names files."""

    def write_shard(self, which: ShardId) -> str:
        """Write a shard and a note of its sha256 and size, on a worker. Return its name."""
        store, (name, chunks) = self.job.shared.store, self._merged(which)
        content = b"".join(chunks)
        digest = hashlib.sha256(content).hexdigest()
        # Also if the object exists: it may be damaged, or about to be removed as garbage.
        store.objects.put(f"{store.files}/{digest}", content)
        self.job.shared.write(f"{NOTES}/{name}", f"{digest} {len(content)}".encode())
        return name

    def collect(self, scratch: Path) -> None:
        """Fetch the shards into the job's folder."""
        job, store = self.job, self.job.shared.store
        noted = {shard["name"]: noted_shard(job.shared, shard["name"]) for shard in job.shards()}
        sizes = dict(noted.values())
        require_space(Path(job.folder), sum(sizes.values()))
        receive(store.objects, store.files, sizes, scratch, "fetch shards")
        placed: dict[str, Path] = {}
        for name, (digest, _) in noted.items():
            # Equal shards, such as empty ones, share an object.
            if digest in placed:
                shutil.copyfile(placed[digest], Path(job.folder, name))
            else:
                placed[digest] = (scratch / digest).rename(Path(job.folder, name))


def writer_of(job: Job) -> Writer:
    """The writer for the records and the shared storage of a job."""
    if isinstance(job.shared, SharedObjects):
        return StoreWriter(job)
    return FixedWriter(job) if job.is_fixed else Writer(job)


def noted_shard(shared: Shared, name: str) -> tuple[str, int]:
    """The sha256 and the bytes of a shard in the store, from the note of its writer."""
    try:
        content = shared.read(f"{NOTES}/{name}", at_most=_NOTE_BYTES)
    except FileNotFoundError:
        raise EngineUnavailableError(f"Beam ended the job without the shard {name}") from None
    note = re.fullmatch(rb"([0-9a-f]{64}) ([0-9]{1,15})", content)
    if not note:
        raise DamagedArtifactError(
            f"{shared}/{NOTES}/{name}: expected sha256 and bytes of a shard, found something else. "
            "Who else writes to [Storage] remote?"
        )
    return note[1].decode(), int(note[2])


def _joined(batches: Sequence[Batch]) -> Batch:
    """The records of several batches, and their places."""
    return [frame for frames, _ in batches for frame in frames], np.concatenate([places for _, places in batches])


def _in_order(places: np.ndarray, num_shards: int) -> list[np.ndarray]:
    """For each shard the numbers of its records in the order of their places."""
    order = np.lexsort((places[:, 1], places[:, 0]))
    return np.split(order, np.searchsorted(places[order, 0], np.arange(1, num_shards)))


def _put(paths: Sequence[Path], frames: Sequence[np.ndarray], places: np.ndarray) -> None:
    """Write records shard by shard: there may be more shards than a process may open.

    By positioned writes, because pages of a memory map count as this process's memory, and a full disk kills it.
    """
    for path, rows in zip(paths, _in_order(places, len(paths)), strict=True):
        if not len(rows):
            continue
        with path.open("r+b", buffering=0) as file:
            for row, place in zip(rows.tolist(), places[rows, 1].tolist(), strict=True):
                frame = memoryview(frames[row])
                offset = place * len(frame)
                while frame:
                    written = os.pwrite(file.fileno(), frame, offset)
                    frame, offset = frame[written:], offset + written


def encode_run(frames: Sequence[bytes | np.ndarray], places: np.ndarray, num_shards: int) -> bytes:
    """A run: framed records in the order of shard and place, which are int64 (records, 2).

    It begins with int64 (num_shards + 1, 2): the number of records before each shard's section, and the section's
    offset. A section consists of int64 (records, 2), the place and length of each record, and the records.
    """
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    sections: list[bytes | np.ndarray] = []
    table = [(0, _ENTRY_BYTES * (num_shards + 1))]
    for rows in _in_order(places, num_shards):
        index = np.stack([places[rows, 1], lengths[rows]], axis=1).astype("<i8").tobytes()
        sections += [index, *(frames[row] for row in rows.tolist())]
        before, offset = table[-1]
        table.append((before + len(rows), offset + len(index) + int(lengths[rows].sum())))
    return b"".join([np.array(table, "<i8").tobytes(), *sections])


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
