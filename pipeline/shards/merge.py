"""Merge: records of any length, sorted block by block, then joined shard by shard (the shards' way of writing those).

A block's records go to one *run*, a file in which they stand by shard and place, with an index beside it. Once all runs
are there, each shard takes its records from them in the order of their places. A run is written whole or not at all, a
shard's bytes follow from the runs: neither blocks nor workers change a byte.
"""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.shards.whole import replacing

# A shard's records are joined and written so many bytes at a time.
_WRITE_BYTES = 8 * 2**20


def write_run(path: Path, frames: Sequence[bytes], places: np.ndarray) -> None:
    """Write a block's framed records sorted by shard and place; ``places`` is int64 (records, 2)."""
    order = np.lexsort((places[:, 1], places[:, 0]))
    offsets = np.cumsum([0, *(len(frames[index]) for index in order)])
    _publish(path, b"".join(frames[index] for index in order))
    index = np.concatenate([*places[order].T, offsets])
    _publish(_index_path(path), index.astype("<i8").tobytes())


def merge_shard(runs: Sequence[Path], shard: int, num_records: int, target: Path) -> int:
    """Write a shard from all runs that hold records of it; returns its bytes.

    Raises:
        ValueError: the runs do not hold each of its records once.
    """
    found = np.concatenate([_entries(run, number, shard) for number, run in enumerate(runs)])
    found = found[np.argsort(found[:, 0], kind="stable")]
    if not np.array_equal(found[:, 0], np.arange(num_records)):
        raise ValueError(f"{target}: expected {num_records} records, each once, found {len(found)}")
    # With the runs, which go with the job: what a worker that was killed leaves is not among the records.
    with replacing(target, runs[0].parent) as temporary, temporary.open("wb") as file:
        for first in _cuts(found[:, 3]):
            file.write(b"".join(_read(runs, found[slice(*first)])))
    return int(found[:, 3].sum())


def _entries(run: Path, number: int, shard: int) -> np.ndarray:
    """Place, run, offset and length of each record of a shard that a run has: int64 (records, 4)."""
    index = np.fromfile(_index_path(run), "<i8")
    # The offsets are one more, the end of the last record.
    shards, places, offsets = np.split(index, [len(index) // 3, len(index) // 3 * 2])
    first, stop = np.searchsorted(shards, [shard, shard + 1])
    offsets = offsets[first : stop + 1]
    return np.stack([places[first:stop], np.full(stop - first, number), offsets[:-1], np.diff(offsets)], axis=1)


def _cuts(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of records of about ``_WRITE_BYTES`` each."""
    parts = np.cumsum(lengths) // _WRITE_BYTES
    edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(lengths)]
    return [(start, stop) for start, stop in itertools.pairwise(edges) if start < stop]


def _read(runs: Sequence[Path], entries: np.ndarray) -> list[bytes]:
    """The records of these entries, each run opened once."""
    found: list[bytes] = [b""] * len(entries)
    for number in np.unique(entries[:, 1]).tolist():
        file = os.open(runs[number], os.O_RDONLY)
        try:
            for row in np.flatnonzero(entries[:, 1] == number).tolist():
                found[row] = os.pread(file, int(entries[row, 3]), int(entries[row, 2]))
        finally:
            os.close(file)
    return found


def _index_path(run: Path) -> Path:
    return run.with_suffix(".index")


def _publish(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def run_path(folder: Path, block: tuple[str, int]) -> Path:
    """The run of a block."""
    split, start = block
    return folder / f"{split}-{start:012d}.run"
