"""Placed: records of one length are put where they belong in their shards at once (the shards' way of writing those).

Every shard is created as long as it will be in the end. A block that is run twice puts the same bytes in the same
places.
"""

import itertools
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

# Of framed records that wait for each other, so that a shard is opened once for many. Little: memory that is touched
# for the first time costs more than opening files.
_PENDING_BYTES = 16 * 2**20


def create_shards(folder: Path, shards: Sequence[Mapping], frame_bytes: int) -> None:
    """Create each shard with the length of all its records."""
    for shard in shards:
        with (folder / shard["name"]).open("wb") as file:
            file.truncate(shard["num_records"] * frame_bytes)


class Placer:
    """Puts batches of framed records where they belong, shard by shard: there may be more than a process may open."""

    def __init__(self, folder: Path, shards: Sequence[Mapping]) -> None:
        self._folder, self._shards = folder, shards
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._pending_bytes = 0

    def put(self, frames: np.ndarray, places: np.ndarray) -> None:
        """Take uint8 (batch, frame_bytes) and int64 (batch, 2), the shard and the place in it of each."""
        self._pending.append((frames, places))
        self._pending_bytes += frames.nbytes
        if self._pending_bytes >= _PENDING_BYTES:
            self.write()

    def write(self) -> None:
        """Write what is pending."""
        found = sorted(
            (shard, place, batch, row)
            for batch, (_, places) in enumerate(self._pending)
            for row, (shard, place) in enumerate(places.tolist())
        )
        for shard, group in itertools.groupby(found, key=operator.itemgetter(0)):
            file = os.open(self._folder / self._shards[shard]["name"], os.O_WRONLY)
            try:
                for _, place, batch, row in group:
                    frame = self._pending[batch][0][row]
                    _write_all(file, frame, place * len(frame))
            finally:
                os.close(file)
        self._pending, self._pending_bytes = [], 0


def _write_all(file: int, content: np.ndarray, offset: int) -> None:
    """Positioned writes, not a memory map: mapped pages count as this process's memory, and a full disk kills it."""
    written = os.pwrite(file, content, offset)
    while written < len(content):
        written += os.pwrite(file, content[written:], offset + written)
