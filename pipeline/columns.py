"""Columns: batches of a split from memory-mapped files, without TensorFlow (… → shards → **columns** → training → …).

For machines that have JAX alone, and for JAX wherever records have one length: such a file is an array of rows, images
and labels, or the tokens of a text, are columns of it. Nothing is read before it is asked for, or held beside the
page cache; a batch is one gather. The order of an epoch, which the input stream takes from here too, and so the batches
are those of ``stream.py`` from memory.
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

# What a stream keeps ahead of the step, at the most: in batches, and in records that come from disk.
AHEAD_BYTES = 256 * 2**20
_MOST_BATCHES_AHEAD, _LEAST_BATCHES_AHEAD = 8, 2


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of the first ``size`` numbers, int64, drawn from (seed, epoch) alone.

    From the bits of Philox, which NumPy keeps the same in all its versions: an epoch is then the same after an update.
    """
    bits = np.random.Philox(key=[seed, epoch]).random_raw(size)
    return np.argsort(bits, kind="stable")


def shards_of(manifest: Mapping, split: str) -> list[Mapping]:
    """The manifest's entries of a split's files, in the order in which its examples are stored."""
    found = (entry for entry in manifest["files"] if entry.get("split") == split)
    return sorted(found, key=lambda entry: entry["shard_index"])


class ColumnStream:
    """Batches of one split of records of one length, as NumPy arrays; see ``stream.InputStream``."""

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
        """``part`` (number, of how many) is that of each batch which ``training`` yields.

        Raises:
            DamagedArtefactError: a file does not have the length that the manifest lists.
            SettingsError: the records are not of one length, or of an earlier version.
        """
        self.num_examples = manifest["splits"][split]["num_examples"]
        self._global_batch_size, self._seed, self._part = global_batch_size, seed, part
        self._problem = problem_of_records(manifest)
        self._rows = Rows.of_manifest(folder, manifest, split)
        files = shards_of(manifest, split)
        self._shards = [self._mapped(folder / file["name"], file["num_records"]) for file in files]
        # Of each shard, and where the last ends.
        self._starts = np.cumsum([0, *map(len, self._shards)])

    @property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file."""
        return self._rows.frame_bytes

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split; a remainder is left out of training only."""
        return self.num_examples // self._global_batch_size

    def training(self, epoch: int) -> "Batches":
        """One pass over the split in the order of (seed, epoch), without the remainder; of each batch this part."""
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
        # Shard by shard, each of which gives its rows by one copy; as they were asked for afterwards.
        order = np.argsort(places)
        ascending = places[order]
        bounds = np.searchsorted(ascending, self._starts)
        frames = np.empty((len(places), self._rows.frame_bytes), np.uint8)
        for number in np.flatnonzero(np.diff(bounds)):
            first, stop = bounds[number : number + 2]
            rows = ascending[first:stop] - self._starts[number]
            # NumPy writes to ``out`` without a buffer of its own where it need not look for places out of bounds.
            np.take(self._shards[number], rows, axis=0, out=frames[first:stop], mode="clip")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values = {name: frames[:, self._rows.places[name]][back] for name in self._problem.columns}
        return self._problem.examples({name: self._rows.decoded(name, found) for name, found in values.items()})

    def _mapped(self, file: Path, num_records: int) -> np.ndarray:
        if file.stat().st_size != num_records * self._rows.frame_bytes:
            raise DamagedArtefactError(
                f"{file}: manifest lists {num_records} records of {self._rows.frame_bytes} bytes each, found "
                f'{file.stat().st_size} bytes. Run "make pipeline" to rebuild it.'
            )
        if not num_records:
            # There is nothing to map.
            return np.empty((0, self._rows.frame_bytes), np.uint8)
        return np.asarray(np.memmap(file, np.uint8, mode="r")).reshape(num_records, self._rows.frame_bytes)


class Batches(keras.utils.PyDataset):
    """One pass: batches by their numbers, those that come next made by threads while a step computes.

    Not by Keras's own workers: what fit takes to build a model with, they do not give again, and every batch of the
    epoch then comes one place too early (Keras 3.15).
    """

    def __init__(self, stream: ColumnStream, places: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._stream, self._places = stream, places
        batch_bytes = max(map(len, places), default=1) * stream.frame_bytes
        self._ahead = max(_LEAST_BATCHES_AHEAD, min(_MOST_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))
        self._pool = ThreadPoolExecutor(machine.granted_cores())
        self._made: dict[int, Future] = {}

    def __len__(self) -> int:
        """How many batches."""
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
        """The first of them."""
        return Batches(self._stream, self._places[:count])
