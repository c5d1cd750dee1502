"""Three writers of shards, which all write the same bytes. A repeated write of a block or shard does so, too.

- ``FixedWriter`` writes records of one length at their final offset in a shared folder.
- ``Writer`` sorts the records of each block into a file, called a run. After all blocks, it merges the runs per shard.
- ``StoreWriter`` does the same with objects, for workers without a shared file system.
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

from pipeline.artifacts.publish import replacing, require_space
from pipeline.errors import DamagedArtifactError, EngineUnavailableError
from pipeline.remote.artifacts import receive
from pipeline.shards.plan import Block, Job, block_file
from pipeline.shards.shared import THREADS, Shared, SharedObjects

#: Framed records, and the shard and position of each, int64 (batch, 2). Records of one length are uint8 (batch, bytes).
Batch = tuple[Sequence[bytes] | np.ndarray, np.ndarray]
#: A split of the source, and the number of a shard among the shards of that split.
ShardId = tuple[str, int]

# Examples per block. Large, because the files of TFDS can only be read from the start.
BLOCK_EXAMPLES = 25_000
BLOCK_BYTES = 64 * 2**20
# Bytes that a merge reads and writes at a time.
_CHUNK_BYTES = 64 * 2**20
# An entry in the table or index of a run is two int64.
_ENTRY_BYTES = 16
# Bytes of pending records, so that a shard is opened once for many records. Small, because the first access to memory
# costs more time than opening files.
_PENDING_BYTES = 16 * 2**20
#: Folders of the runs, and of the entries with sha256 and size of finished shards.
RUNS, SHARD_ENTRIES = "runs", "shards"


class Writer:
    """Sorts the records of each block by shard and position into a run, and merges the runs per shard."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def block_examples(self) -> int:
        """Examples per block. A block of a run must fit into memory."""
        job, image_bytes = self.job, self.job.source.bytes_per_example
        record_bytes = job.layout("train").frame_bytes if job.is_fixed else job.form.num_bytes(image_bytes)
        return max(1, min(BLOCK_EXAMPLES, BLOCK_BYTES // max(1, record_bytes)))

    def prepare(self) -> None:
        """Prepare the job, in the process that submits it."""

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
        """Write the records of a block on a worker."""
        frames, positions = _joined([*batches])
        num_shards = len(self.job.shards_of(block[0]))
        self.job.shared.write(block_file(RUNS, block), encode_run(frames, positions, num_shards))

    def shards(self) -> list[ShardId]:
        """The shards that ``write_shard`` must write after all blocks."""
        return [(split, n) for split in self.job.source.num_examples for n in range(len(self.job.shards_of(split)))]

    def write_shard(self, shard_id: ShardId) -> str:
        """Write a shard on a worker, and return its name."""
        name, content = self._merged(shard_id)
        # The job's folder contains the temporary file, so that it is removed even if the worker is killed.
        with replacing(Path(self.job.folder, name), Path(str(self.job.shared))) as path, path.open("wb") as file:
            file.writelines(content)
        return name

    def _merged(self, shard_id: ShardId) -> tuple[str, Iterator[bytes]]:
        """Name and content of a shard."""
        source_split, number = shard_id
        shard = self.job.shards_of(source_split)[number]
        runs = [block_file(RUNS, block) for block in self.job.blocks(source_split)]
        return shard["name"], merge_runs(self.job.shared, runs, number, shard["num_records"], shard["name"])

    def collect(self, scratch: Path) -> None:
        """Move all shards into the job's folder, in the process that submitted the job."""


class FixedWriter(Writer):
    """Writes records of one length at their final offset. The shards have their final size from the start."""

    def block_examples(self) -> int:
        return BLOCK_EXAMPLES

    def prepare(self) -> None:
        for source_split in self.job.source.num_examples:
            for shard in self.job.shards_of(source_split):
                with Path(self.job.folder, shard["name"]).open("wb") as file:
                    file.truncate(shard["num_records"] * self.job.layout(source_split).frame_bytes)

    def write_block(self, block: Block, batches: Iterable[Batch]) -> None:
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
        # All records are already in their shards.
        return []


class StoreWriter(Writer):
    """Writes runs and shards to an object store. The name of a shard is its sha256, as of all files on the remote."""

    def write_shard(self, shard_id: ShardId) -> str:
        store, (name, chunks) = self.job.shared.store, self._merged(shard_id)
        content = b"".join(chunks)
        digest = hashlib.sha256(content).hexdigest()
        # Even if the object exists, because it may be damaged, or about to be removed as garbage.
        store.objects.put(f"{store.files}/{digest}", content)
        self.job.shared.write(f"{SHARD_ENTRIES}/{name}", f"{digest} {len(content)}".encode())
        return name

    def collect(self, scratch: Path) -> None:
        job, store = self.job, self.job.shared.store
        entries_by_name = {shard["name"]: read_shard_entry(job.shared, shard["name"]) for shard in job.shards()}
        sizes = dict(entries_by_name.values())
        require_space(Path(job.folder), sum(sizes.values()))
        receive(store.objects, store.files, sizes, scratch, "fetch shards")
        paths: dict[str, Path] = {}
        for name, (digest, _) in entries_by_name.items():
            # Equal shards, such as empty ones, share an object.
            if digest in paths:
                shutil.copyfile(paths[digest], Path(job.folder, name))
            else:
                paths[digest] = (scratch / digest).rename(Path(job.folder, name))


def writer_of(job: Job) -> Writer:
    """The writer for the records and shared storage of a job."""
    if isinstance(job.shared, SharedObjects):
        return StoreWriter(job)
    return FixedWriter(job) if job.is_fixed else Writer(job)


def read_shard_entry(shared: Shared, name: str) -> tuple[str, int]:
    """Read the sha256 and the size of a shard in the store, as its writer recorded them."""
    try:
        content = shared.read(f"{SHARD_ENTRIES}/{name}")
    except FileNotFoundError:
        raise EngineUnavailableError(f"Beam finished the job without the shard {name}. Run again.") from None
    match = re.fullmatch(rb"([0-9a-f]{64}) ([0-9]{1,15})", content)
    if not match:
        raise DamagedArtifactError(f"{shared}/{SHARD_ENTRIES}/{name}: another process changed this entry. Run again.")
    return match[1].decode(), int(match[2])


def _joined(batches: Sequence[Batch]) -> Batch:
    return [frame for frames, _ in batches for frame in frames], np.concatenate([positions for _, positions in batches])


def _in_order(positions: np.ndarray, num_shards: int) -> list[np.ndarray]:
    """The indices of each shard's records, in the order of their positions."""
    order = np.lexsort((positions[:, 1], positions[:, 0]))
    return np.split(order, np.searchsorted(positions[order, 0], np.arange(1, num_shards)))


def _put(paths: Sequence[Path], frames: Sequence[np.ndarray], positions: np.ndarray) -> None:
    """Write records shard by shard, because there may be more shards than a process may open.

    Positioned writes are better than a memory map. Its pages count as memory of the process, and a full disk would kill
    the process.
    """
    for path, rows in zip(paths, _in_order(positions, len(paths)), strict=True):
        if not len(rows):
            continue
        with path.open("r+b", buffering=0) as file:
            for row, position in zip(rows.tolist(), positions[rows, 1].tolist(), strict=True):
                frame = memoryview(frames[row])
                offset = position * len(frame)
                while frame:
                    written = os.pwrite(file.fileno(), frame, offset)
                    frame, offset = frame[written:], offset + written


def encode_run(frames: Sequence[bytes | np.ndarray], positions: np.ndarray, num_shards: int) -> bytes:
    """Encode framed records in the order of ``positions``, int64 (records, 2), as a run.

    A run starts with a table, int64 (num_shards + 1, 2), with the number of records before each section and the offset
    of the section. The section of a shard contains an index, int64 (records, 2), with the position and length of each
    record, and then the records.
    """
    lengths = np.fromiter(map(len, frames), np.int64, len(frames))
    sections, table = [], [(0, _ENTRY_BYTES * (num_shards + 1))]
    for rows in _in_order(positions, num_shards):
        index = np.stack([positions[rows, 1], lengths[rows]], axis=1).astype("<i8").tobytes()
        sections += [index, *(frames[row] for row in rows.tolist())]
        num_records, offset = table[-1]
        table.append((num_records + len(rows), offset + len(index) + int(lengths[rows].sum())))
    return b"".join([np.array(table, "<i8").tobytes(), *sections])


def merge_runs(shared: Shared, runs: Sequence[str], shard: int, num_records: int, name: str) -> Iterator[bytes]:
    """Yield the bytes of a shard from the runs. ValueError: they do not have each record of it exactly once."""
    with ThreadPoolExecutor(THREADS) as pool:
        entries = np.concatenate([*pool.map(partial(_entries, shared, shard), runs, itertools.count())])
        entries = entries[np.argsort(entries[:, 0], kind="stable")]
        if not np.array_equal(entries[:, 0], np.arange(num_records)):
            raise ValueError(f"{name}: expected {num_records} different records, got {len(entries)}")
        chunks = np.cumsum(entries[:, 1]) // _CHUNK_BYTES
        for chunk in np.split(entries, np.flatnonzero(np.diff(chunks)) + 1):
            yield b"".join(_read(shared, runs, chunk, pool))


def _entries(shared: Shared, shard: int, run: str, number: int) -> np.ndarray:
    """Position, length, offset and run number of each record of a shard in a run, int64 (records, 4)."""
    entry = np.frombuffer(shared.read_range(run, _ENTRY_BYTES * shard, 2 * _ENTRY_BYTES), "<i8")
    num_records, start = int(entry[2] - entry[0]), int(entry[1])
    index = np.frombuffer(shared.read_range(run, start, _ENTRY_BYTES * num_records), "<i8").reshape(-1, 2)
    positions, lengths = index.T
    offsets = start + index.nbytes + np.cumsum(lengths) - lengths
    return np.stack([positions, lengths, offsets, np.full(num_records, number)], axis=1)


def _read(shared: Shared, runs: Sequence[str], entries: np.ndarray, pool: ThreadPoolExecutor) -> list[memoryview]:
    """Read the records of consecutive entries of a shard. They are consecutive in each run too."""
    records = [memoryview(b"")] * len(entries)

    def read(number: int) -> None:
        rows = np.flatnonzero(entries[:, 3] == number)
        stops = np.cumsum(entries[rows, 1]).tolist()
        content = memoryview(shared.read_range(runs[number], int(entries[rows[0], 2]), stops[-1]))
        if len(content) != stops[-1]:
            raise ValueError(f"{runs[number]}: expected {stops[-1]} bytes, got {len(content)}")
        for row, start, stop in zip(rows.tolist(), [0, *stops], stops, strict=False):
            records[row] = content[start:stop]

    list(pool.map(read, np.unique(entries[:, 3]).tolist()))
    return records
