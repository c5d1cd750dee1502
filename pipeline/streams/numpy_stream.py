"""Input stream for JAX that yields NumPy arrays from memory-mapped files, without TensorFlow.

It requires records of equal length. A file is then an array with a row per record, features are columns, and a batch is
one gather. The batches equal those of ``tf_data.py`` from memory.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import machine
from pipeline.errors import DamagedArtifactError
from pipeline.records.features import FeatureSpec, ImageForm
from pipeline.records.rows import Rows

# Limit of the batches that a stream prepares ahead of the step, and of records from disk.
AHEAD_BYTES = 256 * 2**20
_MAX_BATCHES_AHEAD, _MIN_BATCHES_AHEAD = 8, 2


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """Permutation of 0 to ``size`` - 1, int64. It depends only on seed and epoch."""
    # NumPy guarantees the same bits of Philox in all versions.
    bits = np.random.Philox(key=[seed, epoch]).random_raw(size)
    return np.argsort(bits, kind="stable")


@dataclass(frozen=True)
class Split:
    """Split of published records, see ``open_split``. ``files`` and ``shard_examples`` list its shards in order.

    ``decode`` converts columns of a batch by ``features`` to inputs and labels. ``content_shape`` is that of a decoded
    uint8 example. ``form`` describes stored images. ``layout`` describes records of equal length, else it is None.
    """

    name: str
    files: tuple[str, ...]
    num_examples: int
    features: tuple[str, ...]
    decode: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    content_shape: tuple[int, ...]
    form: ImageForm | None
    spec: FeatureSpec
    predictions_per_example: int
    layout: Rows | None
    shard_examples: tuple[int, ...]

    def mapped(self) -> list[np.ndarray]:
        """Map the shards of records of equal length into memory, each as uint8 (records, frame_bytes)."""
        shards, frame_bytes = [], self.layout.frame_bytes
        for file, num_records in zip(self.files, self.shard_examples, strict=True):
            file_bytes = Path(file).stat().st_size
            if file_bytes != num_records * frame_bytes:
                raise DamagedArtifactError(
                    f"{file}: manifest lists {num_records} records of {frame_bytes} bytes, found {file_bytes} bytes. "
                    'Run "tensorcraft run" to rebuild it.'
                )
            # An empty file cannot be mapped.
            content = np.memmap(file, np.uint8, mode="r") if num_records else np.empty(0, np.uint8)
            shards.append(np.asarray(content).reshape(num_records, frame_bytes))
        return shards


class ColumnStream:
    """Batches of a split of records of equal length. See ``tf_data.InputStream``."""

    def __init__(
        self, split: Split, *, global_batch_size: int, seed: int = 0, process_share: tuple[int, int] = (0, 1)
    ) -> None:
        """Open a split. ``process_share`` (rank, processes) selects the rows of each batch of ``training``."""
        self.split = split
        self._global_batch_size, self._seed, self._process_share = global_batch_size, seed, process_share
        self._shards = split.mapped()
        # Start of each shard in the stored order, and the end of the split.
        self._starts = np.cumsum([0, *split.shard_examples])

    @property
    def steps_per_epoch(self) -> int:
        """Number of full batches in the split. Training omits the remainder."""
        return self.split.num_examples // self._global_batch_size

    def training(self, epoch: int) -> "Batches":
        """Iterate once over the split in the order of seed and epoch, with the rows of this process."""
        size, (rank, processes) = self._global_batch_size, self._process_share
        order = epoch_order(self.split.num_examples, self._seed, epoch)[: self.steps_per_epoch * size]
        rows = slice(rank * size // processes, (rank + 1) * size // processes)
        return Batches(self, list(order.reshape(-1, size)[:, rows]))

    def evaluation(self) -> "Batches":
        """Iterate once over all examples of the split in stored order."""
        starts = range(self._global_batch_size, self.split.num_examples, self._global_batch_size)
        return Batches(self, np.split(np.arange(self.split.num_examples), starts))

    def examples(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels (batch, …) of the examples at int64 ``indices`` (batch,) of the stored order."""
        rows = self.split.layout
        # Sorted indices need one copy per shard. The requested order is restored below.
        order = np.argsort(indices)
        ascending = indices[order]
        bounds = np.searchsorted(ascending, self._starts)
        frames = np.empty((len(indices), rows.frame_bytes), np.uint8)
        for number in np.flatnonzero(np.diff(bounds)):
            start, stop = bounds[number : number + 2]
            numbers = ascending[start:stop] - self._starts[number]
            # With mode="clip", NumPy needs no extra buffer.
            np.take(self._shards[number], numbers, axis=0, out=frames[start:stop], mode="clip")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        columns = {name: frames[:, rows.slices[name]][inverse] for name in self.split.features}
        return self.split.decode({name: rows.decoded(name, column) for name, column in columns.items()})


class Batches(keras.utils.PyDataset):
    """Batches of an epoch by number. Threads prepare the next batches while a step computes.

    Keras 3.15's workers do not repeat the batch from which ``fit`` builds a model.
    """

    def __init__(self, stream: ColumnStream, indices: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._stream, self._indices = stream, indices
        batch_bytes = max(map(len, indices), default=1) * stream.split.layout.frame_bytes
        self._ahead = max(_MIN_BATCHES_AHEAD, min(_MAX_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))
        self._pool = ThreadPoolExecutor(machine.granted_cores())
        self._pending: dict[int, Future] = {}

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._indices)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs and labels of a batch."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        for ahead in range(number, min(number + self._ahead, len(self))):
            if ahead not in self._pending:
                self._pending[ahead] = self._pool.submit(self._stream.examples, self._indices[ahead])
        return self._pending.pop(number).result()

    def take(self, count: int) -> "Batches":
        """Restrict the epoch to its first ``count`` batches."""
        return Batches(self._stream, self._indices[:count])
