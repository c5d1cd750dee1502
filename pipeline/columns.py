"""Column stream: batches of a split from memory-mapped files, as NumPy arrays, without TensorFlow.

For JAX, if records have one length. A file is then an array of rows, and features are columns of it. Nothing is read
before it is needed or kept outside the page cache. A batch is one gather. The batches equal those of ``stream.py`` from
memory, which takes the order of an epoch from here.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np

from pipeline import machine
from pipeline.errors import DamagedArtefactError
from pipeline.problems.find import problem_of_records
from pipeline.records.rows import Rows

# The most that a stream keeps ahead of the step, in batches and in records from disk.
AHEAD_BYTES = 256 * 2**20
_MOST_BATCHES_AHEAD, _LEAST_BATCHES_AHEAD = 8, 2


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of the first ``size`` numbers, int64, that depends only on (seed, epoch).

    NumPy keeps the bits of Philox the same in all versions.
    """
    bits = np.random.Philox(key=[seed, epoch]).random_raw(size)
    return np.argsort(bits, kind="stable")


def shards_of(manifest: Mapping, split: str) -> list[Mapping]:
    """The manifest's entries of a split's files, in stored order."""
    entries = (entry for entry in manifest["files"] if entry.get("split") == split)
    return sorted(entries, key=lambda entry: entry["shard_index"])


def map_shard(file: Path, num_records: int, rows: Rows) -> np.ndarray:
    """A file of records of one length: uint8 (records, frame_bytes), mapped into memory.

    Raises:
        DamagedArtefactError: the file does not have the length that the manifest lists.
    """
    if file.stat().st_size != num_records * rows.frame_bytes:
        raise DamagedArtefactError(
            f"{file}: manifest lists {num_records} records of {rows.frame_bytes} bytes each, found "
            f'{file.stat().st_size} bytes. Run "make pipeline" to rebuild it.'
        )
    # An empty file cannot be mapped.
    content = np.memmap(file, np.uint8, mode="r") if num_records else np.empty(0, np.uint8)
    return np.asarray(content).reshape(num_records, rows.frame_bytes)


class ColumnStream:
    """Batches of one split of records of one length. See ``stream.InputStream``."""

    def __init__(
        self,
        folder: Path,
        manifest: Mapping,
        split: str,
        *,
        global_batch_size: int,
        seed: int = 0,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        """Open a split. ``part`` (number, how many) is the part of each batch that ``training`` yields.

        Raises:
            DamagedArtefactError: a file does not have the length that the manifest lists.
            SettingsError: the records differ in length, or an earlier version wrote them.
        """
        self.num_examples = manifest["splits"][split]["num_examples"]
        self._global_batch_size, self._seed, self._part = global_batch_size, seed, part
        self._problem = problem_of_records(manifest)
        self._rows = Rows.of_manifest(folder, manifest, split)
        files = shards_of(manifest, split)
        self._shards = [map_shard(folder / file["name"], file["num_records"], self._rows) for file in files]
        # The first place of each shard, and the end of the last.
        self._starts = np.cumsum([0, *map(len, self._shards)])

    @property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file."""
        return self._rows.frame_bytes

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split. Training omits the remainder."""
        return self.num_examples // self._global_batch_size

    def training(self, epoch: int) -> "Batches":
        """One pass over the split in the order of (seed, epoch), without the remainder; this process's part."""
        order = epoch_order(self.num_examples, self._seed, epoch)
        number, parts = self._part
        size = self._global_batch_size // parts
        batches = order[: self.steps_per_epoch * self._global_batch_size].reshape(-1, self._global_batch_size)
        return Batches(self, list(batches[:, number * size : (number + 1) * size]))

    def evaluation(self) -> "Batches":
        """One pass over the split in its stored order, to the last example."""
        starts = range(self._global_batch_size, self.num_examples, self._global_batch_size)
        return Batches(self, np.split(np.arange(self.num_examples), starts))

    def examples(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of the examples at these places of the stored order, (batch, …) each."""
        # One copy per shard. The requested order follows.
        order = np.argsort(places)
        ascending = places[order]
        bounds = np.searchsorted(ascending, self._starts)
        frames = np.empty((len(places), self._rows.frame_bytes), np.uint8)
        for number in np.flatnonzero(np.diff(bounds)):
            first, stop = bounds[number : number + 2]
            rows = ascending[first:stop] - self._starts[number]
            # With mode="clip" NumPy needs no buffer of its own.
            np.take(self._shards[number], rows, axis=0, out=frames[first:stop], mode="clip")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values = {name: frames[:, self._rows.places[name]][back] for name in self._problem.columns}
        return self._problem.examples({name: self._rows.decoded(name, found) for name, found in values.items()})


class Batches(keras.utils.PyDataset):
    """One pass: batches by number. Threads make the next ones while a step computes.

    Keras 3.15's own workers do not repeat the batch that ``fit`` builds a model with.
    """

    def __init__(self, stream: ColumnStream, places: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._stream, self._places = stream, places
        batch_bytes = max(map(len, places), default=1) * stream.frame_bytes
        self._ahead = max(_LEAST_BATCHES_AHEAD, min(_MOST_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))
        self._pool = ThreadPoolExecutor(machine.granted_cores())
        self._made: dict[int, Future] = {}

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._places)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of a batch."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        for ahead in range(number, min(number + self._ahead, len(self))):
            if ahead not in self._made:
                self._made[ahead] = self._pool.submit(self._stream.examples, self._places[ahead])
        return self._made.pop(number).result()

    def take(self, count: int) -> "Batches":
        """The first batches."""
        return Batches(self._stream, self._places[:count])
