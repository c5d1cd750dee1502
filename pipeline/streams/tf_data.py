"""Input stream: batches of a split as a ``tf.data.Dataset`` of uint8 examples and labels.

A split that fits in memory is read and decoded once, and each batch is one gather. A larger split is read again in
each epoch, by shards in a seeded order and a shuffle buffer. The order of an epoch depends only on seed and epoch, so
a resumed run gets the same batches. Pixels stay uint8 until the model rescales them on the device.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.augmentation.augment import Augmentation
from pipeline.errors import DamagedArtifactError
from pipeline.records.example import decode_rows, parse_batch
from pipeline.records.features import IMAGE, LABEL
from pipeline.records.images import decode
from pipeline.streams.numpy_stream import AHEAD_BYTES, Batches, ColumnStream, Split, epoch_order

# Share of the free memory that a split may take. The rest is for the model and the runtime.
MEMORY_SHARE = 0.5
# Records are stored shuffled, and the order of the shards changes in each epoch. The buffer only mixes neighbors. It is
# small, because memory that is touched for the first time costs more than reading.
SHUFFLE_BUFFER_EXAMPLES = 10_000
_READ_BUFFER_BYTES = 8 * 2**20
_ALIGNMENT = 64
# Encoded images per decoded batch. They stay in the processor's cache.
_DECODE_BATCH = 64
# Batches made ahead. Many small ones (400 kB for CIFAR-10) cover one call of several training steps. Large ones take
# memory, and their steps take long.
_MOST_BATCHES_AHEAD, _LEAST_BATCHES_AHEAD = 32, 2


class InputStream:
    """Batches of one split: inputs uint8 (batch, …) and labels int32 (batch, …), float32 (batch, 3) after mixup."""

    def __init__(
        self,
        split: Split,
        *,
        global_batch_size: int,
        seed: int,
        in_memory: bool | None = None,
        augmentation: Augmentation | None = None,
        part: tuple[int, int] = (0, 1),
        columns: ColumnStream | None = None,
    ) -> None:
        """Open a split. ``in_memory=None`` keeps it in memory if it fits.

        ``augmentation`` changes the batches of ``training``. ``part`` (number, how many) is the part of each batch that
        this process gets. ``columns`` of the same split make the batches of ``training`` instead. They are equal.
        """
        self.split = split
        self.global_batch_size = global_batch_size
        self.seed = seed
        self.augmentation = augmentation
        self.part = part
        self.in_memory = fits_in_memory(split) if in_memory is None else in_memory
        self._columns = columns
        self._examples = _load(split) if self.in_memory and columns is None else None

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split. Training omits the remainder."""
        return self.split.num_examples // self.global_batch_size

    @property
    def predictions_per_epoch(self) -> int:
        """Predictions in one epoch of training, such as images, or tokens of all sequences."""
        return self.steps_per_epoch * self.global_batch_size * self.split.predictions_per_example

    @property
    def batches_ahead(self) -> int:
        """Batches that are made while a step computes."""
        batch_bytes = self.global_batch_size * math.prod(self.split.content_shape)
        return max(_LEAST_BATCHES_AHEAD, min(_MOST_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))

    def training(self, epoch: int) -> tf.data.Dataset | Batches:
        """One pass over the split in the order of (seed, epoch), without the remainder; this process's part."""
        if self._columns is not None:
            return self._columns.training(epoch)
        size, augmentation, (number, parts) = self.global_batch_size, self.augmentation, self.part
        part = slice(number * size // parts, (number + 1) * size // parts)
        is_mixed = augmentation is not None and augmentation.mixes
        # Mixup pairs examples of different parts, so the part is taken last. Otherwise it is taken first.
        how = {"makers": self._makers, "part": slice(None) if is_mixed else part}
        if augmentation:
            how["change"] = partial(augmentation.change, epoch)
        if self._examples is not None:
            # Each epoch omits other examples.
            order = epoch_order(self.split.num_examples, self.seed, epoch)[: self.steps_per_epoch * size]
            places = tf.data.Dataset.from_tensor_slices(order.reshape(-1, size))
            batches = from_memory(self.split, self._examples, places, **how)
        else:
            order = epoch_order(len(self.split.files), self.seed, epoch)
            batches = from_disk(self.split, order, size, shuffle_seed=self.seed * 100_003 + epoch, **how)
        if is_mixed:
            batches = augmentation.mixing(batches, epoch, self._makers)
            batches = batches.map(lambda images, labels: (images[part], labels[part])) if parts > 1 else batches
        return self._prefetched(batches).apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch))

    def evaluation(self) -> tf.data.Dataset:
        """One pass over the split in its stored order, to the last example."""
        split, size = self.split, self.global_batch_size
        if self._examples is not None:
            places = tf.data.Dataset.range(split.num_examples).batch(size)
            batches = from_memory(split, self._examples, places, makers=self._makers)
        else:
            batches = from_disk(split, np.arange(len(split.files)), size, makers=self._makers)
        return self._prefetched(batches)

    @property
    def _makers(self) -> int:
        """Threads that make batches."""
        # Each takes the memory of a batch. For encoded images, one more than there are cores keeps them busy.
        return min(machine.granted_cores() + (self.split.layout is None), self.batches_ahead)

    def _prefetched(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        options = tf.data.Options()
        options.deterministic = True
        # TensorFlow 2.21 closes an autotuned iterator only after the tuner's period, from 10 ms to a minute:
        # an epoch of 6 s took 10.2 s, the next 20.5 s. Fixed numbers cost nothing here.
        options.autotune.enabled = False
        # Nothing is left to optimize, and the search takes 6 ms per epoch.
        options.experimental_optimization.apply_default_optimizations = False
        # Sharding files over replicas would change the batches.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        return batches.prefetch(self.batches_ahead).with_options(options)


# (inputs, labels, places in the stored order) → what a dataset yields.
_Change = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]


def from_memory(
    split: Split,
    columns: Mapping[str, tf.Tensor],
    places: tf.data.Dataset,
    *,
    makers: int,
    change: _Change | None = None,
    part: slice = slice(None),
) -> tf.data.Dataset:
    """Batches of a split in memory, made by ``makers`` threads, of which ``part`` is made.

    ``columns``: all examples by feature. ``places``: int64 (batch,), the examples of each batch.
    """

    def make(batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        batch = batch[part]
        examples = split.decode({name: tf.gather(column, batch) for name, column in columns.items()})
        return change(*examples, batch) if change else examples

    return places.map(make, num_parallel_calls=makers)


def from_disk(
    split: Split,
    file_order: np.ndarray,
    batch_size: int,
    *,
    makers: int,
    shuffle_seed: int | None = None,
    change: _Change | None = None,
    part: slice = slice(None),
) -> tf.data.Dataset:
    """Batches of a split from its files. See ``from_memory``.

    ``file_order``: int64 (files,). With ``shuffle_seed`` a buffer shuffles the records and the remainder is omitted.
    """
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
    batches = records.batch(batch_size, drop_remainder=shuffle_seed is not None)

    def make(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        examples = split.decode(_columns_of(split, batch[-1][part]))
        return change(*examples, _places(split, file_order, batch[0][part])) if change else examples

    return batches.map(make, num_parallel_calls=makers)


def fits_in_memory(split: Split) -> bool:
    """Whether the split's examples take at most half of the free memory."""
    return split.num_examples * math.prod(split.content_shape) <= MEMORY_SHARE * machine.free_memory_bytes()


def _places(split: Split, file_order: np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    """Places in the stored order of examples that were numbered in the order of the files."""
    counts = np.array(split.shard_examples)
    stored_starts = (np.cumsum(counts) - counts)[file_order]
    stops = np.cumsum(counts[file_order])
    file = tf.searchsorted(stops, numbers, side="right")
    return numbers - tf.gather(stops - counts[file_order], file) + tf.gather(stored_starts, file)


def _columns_of(split: Split, records: tf.Tensor) -> dict[str, tf.Tensor]:
    """The decoded features of a batch of records, string (batch,)."""
    if split.layout is not None:
        return decode_rows(split.layout, tf.io.decode_raw(records, tf.uint8, fixed_length=split.layout.frame_bytes))
    found = parse_batch(records, split.spec)
    return {**found, IMAGE: decode(found[IMAGE], split.form, split.content_shape)}


def _load(split: Split) -> dict[str, tf.Tensor]:
    """All decoded examples of a split, by feature."""
    columns = {
        name: _aligned((split.num_examples,), np.int32)
        if name == LABEL
        else _aligned((split.num_examples, *split.content_shape), np.uint8)
        for name in split.features
    }
    found = sum(split.shard_examples)
    if found == split.num_examples:
        found = _decode_into(columns, split) if split.layout is None else _copy_into(columns, split)
    if found != split.num_examples:
        raise DamagedArtifactError(
            f"{Path(split.files[0]).parent}: manifest lists {split.num_examples} {split.name} records, found {found}. "
            'Run "make pipeline" to rebuild it.'
        )
    # Without a copy: that of convert_to_tensor takes longer than reading.
    return {name: tf.experimental.dlpack.from_dlpack(array.__dlpack__()) for name, array in columns.items()}


def _copy_into(columns: Mapping[str, np.ndarray], split: Split) -> int:
    """Copy all records of one length. Return their number."""

    def copy(shard: np.ndarray, start: int) -> None:
        found = split.layout.columns(shard)
        for name, column in columns.items():
            column[start : start + len(shard)] = found[name]

    *starts, stop = np.cumsum((0, *split.shard_examples)).tolist()
    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        list(pool.map(copy, split.mapped(), starts))
    return stop


def _decode_into(columns: Mapping[str, np.ndarray], split: Split) -> int:
    """Decode all records of any length. Return their number."""
    options = tf.data.Options()
    options.autotune.enabled = False
    records = tf.data.TFRecordDataset(list(split.files), buffer_size=_READ_BUFFER_BYTES).batch(_DECODE_BATCH)
    # One more than there are cores keeps them busy while a batch is copied.
    workers = machine.granted_cores() + 1
    decoded = records.map(partial(_columns_of, split), num_parallel_calls=workers).prefetch(workers)
    start = 0
    for found in decoded.with_options(options).as_numpy_iterator():
        stop = start + len(found[LABEL])
        for name, column in columns.items():
            column[start:stop] = found[name]
        start = stop
    return start


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An empty array on a 64-byte boundary, which TensorFlow's operations need."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    spare = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    return spare[-spare.ctypes.data % _ALIGNMENT :][:num_bytes].view(dtype).reshape(shape)
