"""Input stream that yields batches of a split as a ``tf.data.Dataset`` of uint8 examples and labels.

A split that fits in memory is read and decoded once, and each batch is one gather. A larger split is read in each
epoch, with a seeded order of shards and a shuffle buffer. The order depends only on seed and epoch, so a resumed run
gets the same batches. Pixels stay uint8 until the model rescales them on the device.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.augmentation import Augmentation
from pipeline.errors import DamagedArtifactError
from pipeline.records.example import decode_rows, parse_batch
from pipeline.records.features import IMAGE, LABEL
from pipeline.records.images import decode
from pipeline.streams.numpy_stream import AHEAD_BYTES, Batches, ColumnStream, Split, epoch_order

# Maximum share of free memory for a split. The rest is for the model and the runtime.
MEMORY_SHARE = 0.5
# Records are stored shuffled and the order of shards changes in each epoch, so the buffer only mixes neighbors. It is
# small, because the first use of memory costs more than reading.
SHUFFLE_BUFFER_EXAMPLES = 10_000
_READ_BUFFER_BYTES = 8 * 2**20
_ALIGNMENT = 64
# Encoded images per decoded batch, few enough for the processor's cache.
_DECODE_BATCH = 64
# Limits of the batches that are prepared ahead. Small batches (400 kB for CIFAR-10) must cover a call of several steps.
# Large batches need memory, and their steps take long.
_MAX_BATCHES_AHEAD, _MIN_BATCHES_AHEAD = 32, 2


class InputStream:
    """Batches of a split: uint8 inputs (batch, …), and labels of the problem or, after mixup, float32 (batch, 3)."""

    def __init__(
        self,
        split: Split,
        *,
        global_batch_size: int,
        seed: int,
        in_memory: bool | None = None,
        augmentation: Augmentation | None = None,
        process_share: tuple[int, int] = (0, 1),
        columns: ColumnStream | None = None,
    ) -> None:
        """Open a split. ``in_memory=None`` keeps it in memory if it fits.

        ``augmentation`` changes the batches of ``training``. ``process_share`` (rank, processes) selects the rows of
        this process in each batch. ``columns`` is a stream of the same split that yields the batches of ``training``.
        """
        self.split, self.global_batch_size, self.seed = split, global_batch_size, seed
        self.augmentation, self.process_share = augmentation, process_share
        self.in_memory = fits_in_memory(split) if in_memory is None else in_memory
        self._columns = columns
        self._examples = _load(split) if self.in_memory and columns is None else None

    @property
    def steps_per_epoch(self) -> int:
        """Number of full batches in the split. Training omits the remainder."""
        return self.split.num_examples // self.global_batch_size

    @property
    def predictions_per_epoch(self) -> int:
        """Number of predictions in an epoch of training, such as images or tokens of all sequences."""
        return self.steps_per_epoch * self.global_batch_size * self.split.predictions_per_example

    @property
    def batches_ahead(self) -> int:
        """Number of batches to prepare while a step computes."""
        batch_bytes = self.global_batch_size * math.prod(self.split.content_shape)
        return max(_MIN_BATCHES_AHEAD, min(_MAX_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))

    def training(self, epoch: int) -> tf.data.Dataset | Batches:
        """Iterate once over the split in the order of seed and epoch, with the rows of this process."""
        if self._columns is not None:
            return self._columns.training(epoch)
        size, augmentation, (rank, processes) = self.global_batch_size, self.augmentation, self.process_share
        rows = slice(rank * size // processes, (rank + 1) * size // processes)
        is_mixed = augmentation is not None and augmentation.mixes
        # Mixup pairs examples of different processes, so it needs all rows.
        change = partial(augmentation.change, epoch) if augmentation else None
        options = {"rows": slice(None) if is_mixed else rows, "change": change}
        if self._examples is not None:
            # The omitted examples differ between epochs.
            order = epoch_order(self.split.num_examples, self.seed, epoch)[: self.steps_per_epoch * size]
            indices = tf.data.Dataset.from_tensor_slices(order.reshape(-1, size))
            batches = self._from_memory(indices, **options)
        else:
            order = epoch_order(len(self.split.files), self.seed, epoch)
            batches = self._from_disk(order, shuffle_seed=self.seed * 100_003 + epoch, **options)
        if is_mixed:
            batches = augmentation.mixing(batches, epoch, self._num_threads)
            batches = batches.map(lambda images, labels: (images[rows], labels[rows])) if processes > 1 else batches
        return self._prefetched(batches).apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch))

    def evaluation(self) -> tf.data.Dataset:
        """Iterate once over all examples of the split in stored order."""
        if self._examples is not None:
            indices = tf.data.Dataset.range(self.split.num_examples).batch(self.global_batch_size)
            return self._prefetched(self._from_memory(indices))
        return self._prefetched(self._from_disk(np.arange(len(self.split.files))))

    @property
    def _num_threads(self) -> int:
        """Number of threads that prepare batches."""
        # Each thread needs the memory of a batch. For encoded images, an extra thread keeps all cores busy.
        return min(machine.granted_cores() + (self.split.layout is None), self.batches_ahead)

    def _from_memory(
        self, indices: tf.data.Dataset, *, change: Callable | None = None, rows: slice = slice(None)
    ) -> tf.data.Dataset:
        """Gather batches from memory. ``indices``, int64 (batch,), selects the examples and ``rows`` some of them.

        ``change`` makes an element from inputs, labels and indices in the stored order.
        """

        def make(batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batch = batch[rows]
            examples = self.split.decode({name: tf.gather(column, batch) for name, column in self._examples.items()})
            return change(*examples, batch) if change else examples

        return indices.map(make, num_parallel_calls=self._num_threads)

    def _from_disk(
        self,
        file_order: np.ndarray,
        *,
        shuffle_seed: int | None = None,
        change: Callable | None = None,
        rows: slice = slice(None),
    ) -> tf.data.Dataset:
        """Read batches from the files in the order ``file_order``, int64 (files,). See ``_from_memory``.

        With ``shuffle_seed``, a buffer shuffles the records, and the remainder is omitted.
        """
        split = self.split
        files = [split.files[number] for number in file_order]
        if split.layout is not None:
            record_bytes = split.layout.frame_bytes
            records = tf.data.FixedLengthRecordDataset(files, record_bytes, buffer_size=_READ_BUFFER_BYTES)
        else:
            record_bytes = max(1, sum(Path(file).stat().st_size for file in files) // split.num_examples)
            records = tf.data.TFRecordDataset(files, buffer_size=_READ_BUFFER_BYTES)
        if change:
            records = records.enumerate()
        if shuffle_seed is not None:
            buffer = max(1, min(SHUFFLE_BUFFER_EXAMPLES, AHEAD_BYTES // record_bytes))
            records = records.shuffle(buffer, seed=shuffle_seed)
        batches = records.batch(self.global_batch_size, drop_remainder=shuffle_seed is not None)

        def make(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            examples = split.decode(_columns_of(split, batch[-1][rows]))
            return change(*examples, _stored_indices(split, file_order, batch[0][rows])) if change else examples

        return batches.map(make, num_parallel_calls=self._num_threads)

    def _prefetched(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        options = tf.data.Options()
        options.deterministic = True
        # TensorFlow 2.21 closes an autotuned iterator only after the tuner's period, from 10 ms to a minute. An epoch
        # of 6 s took 10.2 s, and the next 20.5 s.
        options.autotune.enabled = False
        # The search for optimizations takes 6 ms per epoch and finds none.
        options.experimental_optimization.apply_default_optimizations = False
        # Sharding files over replicas would change the batches.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.prefetch(self.batches_ahead).with_options(options)


def fits_in_memory(split: Split) -> bool:
    """Whether the decoded examples of the split need at most half of the free memory."""
    return split.num_examples * math.prod(split.content_shape) <= MEMORY_SHARE * machine.free_memory_bytes()


def _stored_indices(split: Split, file_order: np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    """Indices in the stored order, from numbers in the order of the files."""
    counts = np.array(split.shard_examples)
    stored_starts = (np.cumsum(counts) - counts)[file_order]
    stops = np.cumsum(counts[file_order])
    file = tf.searchsorted(stops, numbers, side="right")
    return numbers - tf.gather(stops - counts[file_order], file) + tf.gather(stored_starts, file)


def _columns_of(split: Split, records: tf.Tensor) -> dict[str, tf.Tensor]:
    """Decoded features of a batch of records, string (batch,)."""
    if split.layout is not None:
        return decode_rows(split.layout, tf.io.decode_raw(records, tf.uint8, fixed_length=split.layout.frame_bytes))
    columns = parse_batch(records, split.spec)
    return {**columns, IMAGE: decode(columns[IMAGE], split.form, split.content_shape)}


def _load(split: Split) -> dict[str, tf.Tensor]:
    """Load all decoded examples of a split, by feature."""
    columns = {name: _aligned((split.num_examples, *split.content_shape), np.uint8) for name in split.features}
    if label := split.spec.get(LABEL):
        columns[LABEL] = _aligned((split.num_examples, *label.shape), np.int32 if label.is_number else label.dtype)
    *starts, num_records = np.cumsum((0, *split.shard_examples)).tolist()
    if num_records == split.num_examples and split.layout is None:
        num_records = _decode_into(columns, split)
    elif num_records == split.num_examples:

        def copy(shard: np.ndarray, start: int) -> None:
            values = split.layout.columns(shard)
            for name, column in columns.items():
                column[start : start + len(shard)] = values[name]

        with ThreadPoolExecutor(machine.granted_cores()) as pool:
            list(pool.map(copy, split.mapped(), starts))
    if num_records != split.num_examples:
        raise DamagedArtifactError(
            f"{Path(split.files[0]).parent}: manifest lists {split.num_examples} {split.name} records, found "
            f'{num_records}. Run "tensorcraft run" to rebuild it.'
        )
    # The copy of convert_to_tensor would take longer than reading.
    return {name: tf.experimental.dlpack.from_dlpack(array.__dlpack__()) for name, array in columns.items()}


def _decode_into(columns: Mapping[str, np.ndarray], split: Split) -> int:
    """Decode all records of varying length. Return their number."""
    options = tf.data.Options()
    options.autotune.enabled = False
    records = tf.data.TFRecordDataset(list(split.files), buffer_size=_READ_BUFFER_BYTES).batch(_DECODE_BATCH)
    # An extra worker keeps all cores busy while a batch is copied.
    workers = machine.granted_cores() + 1
    decoded = records.map(partial(_columns_of, split), num_parallel_calls=workers).prefetch(workers)
    start = 0
    for batch in decoded.with_options(options).as_numpy_iterator():
        stop = start + len(batch[LABEL])
        for name, column in columns.items():
            column[start:stop] = batch[name]
        start = stop
    return start


def _aligned(shape: tuple[int, ...], dtype: type | str) -> np.ndarray:
    """Allocate an array on a 64-byte boundary, which TensorFlow's operations need."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    spare = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    return spare[-spare.ctypes.data % _ALIGNMENT :][:num_bytes].view(dtype).reshape(shape)
