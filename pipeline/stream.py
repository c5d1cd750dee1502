"""Input stream: shards to a batched tf.data.Dataset of uint8 examples (… → shards → **stream** → training → …).

Where all records of a split have one length, a shard is an array of rows, and images and labels, or the tokens of a
text, are columns of it: taken apart by array slices, with no work per record. What of them is input and what is label
says the problem. Encoded images are parsed and decoded a batch at a time. Pixels
stay uint8, a quarter of the bytes of float32, until the model rescales them on the device, through augmentation too.

A split whose pixels fit in memory is read, and decoded, once. Each epoch is then a new permutation of all its examples,
drawn from (seed, epoch), and each batch one gather. A larger split is read anew each epoch: shards in a seeded order,
then a shuffle buffer. Either way an epoch's order depends on the seed and the epoch alone, so a run that is resumed
sees the batches it would have seen.

The checksum of each record is left to ``make verify``: training checks the sha256 of every file before its first step.
"""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.augmentation.augment import Augmentation
from pipeline.columns import AHEAD_BYTES, Batches, ColumnStream, epoch_order, shards_of
from pipeline.errors import DamagedArtefactError
from pipeline.problems.find import problem_of_records
from pipeline.problems.problem import Problem
from pipeline.records.example import parse_batch
from pipeline.records.features import IMAGE, LABEL, FeatureSpec, ImageForm, is_fixed, spec_from_json
from pipeline.records.fixed import decode as decode_rows
from pipeline.records.images import decode
from pipeline.records.rows import Rows

# Share of the memory free at the start that a split's pixels may take; the rest is for the model and the runtime.
MEMORY_SHARE = 0.5
# Records are stored shuffled, and the order of the shards changes with each epoch: this only mixes neighbours. Small,
# for memory that is touched for the first time costs more than reading what goes there.
SHUFFLE_BUFFER_EXAMPLES = 10_000
_READ_BUFFER_BYTES = 8 * 2**20
_ALIGNMENT = 64
# Of what the manifest says of images.
_OF_A_FORM = ("size", "resize", "encoding", "smallest_side")
# Encoded images that are decoded at once: small enough to stay in the processor's cache.
_DECODE_BATCH = 64
# Batches made ahead where they are small (400 kB each for CIFAR-10): enough to cover one call of several training
# steps. Where they are large a step takes long, and the least that lets the next be made meanwhile will do.
_MOST_BATCHES_AHEAD, _LEAST_BATCHES_AHEAD = 32, 2


@dataclass(frozen=True)
class Split:
    """One split of published records.

    ``files``: its shards in order; ``content_shape``: of an example as it lies in memory, uint8, as (height, width,
    channels) of an image; ``form``: how images are stored, None where there are none; ``predictions_per_example``: how
    many labels one has; ``layout``: how a record is, where all have one length, else None; ``shard_examples``: how many
    each file holds.
    """

    name: str
    files: tuple[str, ...]
    num_examples: int
    problem: Problem
    content_shape: tuple[int, ...]
    form: ImageForm | None
    spec: FeatureSpec
    predictions_per_example: int
    layout: Rows | None
    shard_examples: tuple[int, ...] = ()

    @classmethod
    def of_manifest(cls, folder: Path, manifest: Mapping, split: str) -> "Split":
        """The split as the records' manifest in ``folder`` describes it."""
        shards = shards_of(manifest, split)
        files = tuple(str(folder / shard["name"]) for shard in shards)
        spec, image = spec_from_json(manifest["feature_spec"]), manifest.get("image")
        problem = problem_of_records(manifest)
        return cls(
            name=split,
            files=files,
            num_examples=manifest["splits"][split]["num_examples"],
            problem=problem,
            content_shape=problem.content_shape(manifest),
            form=ImageForm(**{name: image[name] for name in _OF_A_FORM}) if image else None,
            spec=spec,
            predictions_per_example=problem.task(manifest).predictions_per_example,
            layout=Rows.of_manifest(folder, manifest, split) if is_fixed(spec) else None,
            shard_examples=tuple(shard["num_records"] for shard in shards),
        )

    def content_bytes(self) -> int:
        """Bytes of all examples, images decoded."""
        return self.num_examples * math.prod(self.content_shape)

    def record_bytes(self) -> int:
        """About the bytes of one record as it waits to be shuffled."""
        if self.layout is not None:
            return self.layout.frame_bytes
        return max(1, sum(Path(file).stat().st_size for file in self.files) // self.num_examples)


class InputStream:
    """Batches of one split: ``training(epoch)`` shuffled, ``evaluation()`` in order and whole.

    Every dataset yields inputs and labels as the problem has them, of images (uint8 images (batch, height, width,
    channels), int32 labels (batch,)); the labels of an augmentation that mixes examples are float32 (batch, 3), see
    augmentation/augment.py.
    """

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
        """``in_memory=None`` keeps the split in memory where it fits.

        ``augmentation`` changes what ``training`` yields; ``part`` (number, of how many) is that of each batch which it
        yields, where several processes train on the same batches; ``columns`` of the same split make the batches of
        ``training`` where they are given, the same ones.
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
        """Whole batches in one pass over the split; a remainder is left out of training only."""
        return self.split.num_examples // self.global_batch_size

    @property
    def predictions_per_epoch(self) -> int:
        """What one pass of training predicts: images, or the tokens of as many sequences."""
        return self.steps_per_epoch * self.global_batch_size * self.split.predictions_per_example

    @property
    def batches_ahead(self) -> int:
        """Batches that are made while a step computes."""
        batch_bytes = self.global_batch_size * math.prod(self.split.content_shape)
        return max(_LEAST_BATCHES_AHEAD, min(_MOST_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))

    def training(self, epoch: int) -> tf.data.Dataset | Batches:
        """One pass over the split in the order of (seed, epoch), without the remainder; of each batch this part."""
        if self._columns is not None:
            return self._columns.training(epoch)
        if self._examples is not None:
            # Shuffle before the remainder is dropped: each epoch leaves out other examples.
            order = epoch_order(self.split.num_examples, self.seed, epoch)
            order = order[: self.steps_per_epoch * self.global_batch_size]
            indices = tf.data.Dataset.from_tensor_slices(order.reshape(-1, self.global_batch_size))
            batches = self._finish(indices, self._gather, epoch)
        else:
            order = tf.constant(epoch_order(len(self.split.files), self.seed, epoch))
            files = tf.gather(tf.constant(self.split.files), order)
            buffer = max(1, min(SHUFFLE_BUFFER_EXAMPLES, AHEAD_BYTES // self.split.record_bytes()))
            records = self._records(files)
            if self.augmentation:
                records = records.enumerate()
            records = records.shuffle(buffer, seed=self.seed * 100_003 + epoch)
            batches = records.batch(self.global_batch_size, drop_remainder=True)
            batches = self._finish(batches, self._examples_of, epoch, order)
        return batches.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch))

    def evaluation(self) -> tf.data.Dataset:
        """One pass over the split in its stored order, to the last example."""
        if self._examples is not None:
            starts = tf.data.Dataset.range(0, self.split.num_examples, self.global_batch_size)
            return self._finish(starts, self._slice)
        return self._finish(self._records(list(self.split.files)).batch(self.global_batch_size), self._examples_of)

    def _records(self, files: object) -> tf.data.Dataset:
        """The split's records, of one length with their frames, else without."""
        if self.split.layout is not None:
            frame_bytes = self.split.layout.frame_bytes
            return tf.data.FixedLengthRecordDataset(files, record_bytes=frame_bytes, buffer_size=_READ_BUFFER_BYTES)
        return tf.data.TFRecordDataset(files, buffer_size=_READ_BUFFER_BYTES)

    def _finish(
        self,
        batches: tf.data.Dataset,
        to_examples: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
        epoch: int | None = None,
        file_order: tf.Tensor | None = None,
    ) -> tf.data.Dataset:
        """``epoch``: whose augmentation, None for none; ``file_order``: of an epoch that is read from disk."""
        options = tf.data.Options()
        options.deterministic = True
        # An iterator whose parallelism TensorFlow 2.21 tunes is not closed before the tuner's next period, which
        # doubles from 10 ms to a minute: an epoch of 6 s took 10.2 s, the next 20.5 s. Fixed numbers cost nothing here.
        options.autotune.enabled = False
        # There is nothing left to improve in four transformations, and looking takes 6 ms at the start of each epoch.
        options.experimental_optimization.apply_default_optimizations = False
        # Batches are ready made and all differ: cutting files over replicas would only give them other examples.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # Each batch that is being made takes memory as one that is ready does. Where images are decoded, one maker more
        # than there are cores keeps them busy while a batch is handed over.
        makers = min(machine.granted_cores() + (self.split.layout is None), self.batches_ahead)
        is_mixed = epoch is not None and self.augmentation and self.augmentation.mixes
        if epoch is not None and not is_mixed:
            batches = self._parts(batches)
        if epoch is not None and self.augmentation:
            batches = self._augmented(batches, to_examples, epoch, file_order, makers)
        else:
            batches = batches.map(to_examples, num_parallel_calls=makers)
        if is_mixed:
            # An example is mixed with one that may be of another part.
            batches = self._parts(batches)
        return batches.prefetch(self.batches_ahead).with_options(options)

    def _parts(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        number, parts = self.part
        if parts == 1:
            return batches
        size = self.global_batch_size // parts
        return batches.map(lambda *batch: _unpacked([one[number * size : (number + 1) * size] for one in batch]))

    def _augmented(
        self, batches: tf.data.Dataset, to_examples: Callable, epoch: int, file_order: tf.Tensor | None, makers: int
    ) -> tf.data.Dataset:
        """``batches``: indices of the split, or numbers in the order of the files, and the records."""

        def augment(*batch: tf.Tensor) -> tuple[tf.Tensor, ...]:
            places = batch[0] if file_order is None else self._places(batch[0], file_order)
            images, labels = to_examples(batch[-1])
            images = self.augmentation.images(images, places, epoch)
            return (images, labels, places) if self.augmentation.mixes else (images, labels)

        found = batches.map(augment, num_parallel_calls=makers)
        return self.augmentation.mixing(found, epoch, makers) if self.augmentation.mixes else found

    def _places(self, numbers: tf.Tensor, file_order: tf.Tensor) -> tf.Tensor:
        """Places in the stored order of examples that were numbered as the files came."""
        counts = np.array(self.split.shard_examples)
        stored_starts = tf.gather(tf.constant(np.cumsum(counts) - counts), file_order)
        counts = tf.gather(tf.constant(counts), file_order)
        stops = tf.cumsum(counts)
        file = tf.searchsorted(stops, numbers, side="right")
        return numbers - tf.gather(stops - counts, file) + tf.gather(stored_starts, file)

    def _gather(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.split.problem.examples({name: tf.gather(one, indices) for name, one in self._examples.items()})

    def _slice(self, start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        stop = start + self.global_batch_size
        return self.split.problem.examples({name: one[start:stop] for name, one in self._examples.items()})

    def _examples_of(self, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.split.problem.examples(_columns_of(self.split, records))


def fits_in_memory(split: Split) -> bool:
    """Whether the split's examples take no more than half of the memory that is free."""
    return split.content_bytes() <= MEMORY_SHARE * machine.free_memory_bytes()


def _unpacked(batch: list[tf.Tensor]) -> tf.Tensor | tuple[tf.Tensor, ...]:
    return tuple(batch) if len(batch) > 1 else batch[0]


def _columns_of(split: Split, records: tf.Tensor) -> dict[str, tf.Tensor]:
    """The features of a batch of records, string (batch,) as they are read from disk; images decoded."""
    if split.layout is not None:
        return decode_rows(split.layout, tf.io.decode_raw(records, tf.uint8, fixed_length=split.layout.frame_bytes))
    found = parse_batch(records, split.spec)
    return {**found, IMAGE: decode(found[IMAGE], split.form, split.content_shape)}


def _load(split: Split) -> dict[str, tf.Tensor]:
    """All examples of a split, feature by feature, copied or decoded once to where they stay."""
    columns = {
        name: _aligned((split.num_examples,), np.int32)
        if name == LABEL
        else _aligned((split.num_examples, *split.content_shape), np.uint8)
        for name in split.problem.columns
    }
    if split.layout is None:
        _decode_into(split, columns)
    else:
        _copy_into(split, split.layout, columns)
    # As they are: convert_to_tensor would copy them, which takes longer than reading.
    return {name: tf.experimental.dlpack.from_dlpack(array.__dlpack__()) for name, array in columns.items()}


def _copy_into(split: Split, layout: Rows, columns: Mapping[str, np.ndarray]) -> None:
    sizes = [Path(file).stat().st_size for file in split.files]
    if sum(sizes) != split.num_examples * layout.frame_bytes or any(size % layout.frame_bytes for size in sizes):
        raise DamagedArtefactError(
            f"{Path(split.files[0]).parent}: manifest lists {split.num_examples} {split.name} records of "
            f'{layout.frame_bytes} bytes each, found {sum(sizes)} bytes. Run "make pipeline" to rebuild it.'
        )
    stops = np.cumsum([size // layout.frame_bytes for size in sizes])

    def copy(file: str, start: int, stop: int) -> None:
        if start < stop:
            frames = np.memmap(file, np.uint8, mode="r").reshape(-1, layout.frame_bytes)
            found = layout.columns(frames)
            for name, column in columns.items():
                column[start:stop] = found[name]

    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        list(pool.map(copy, split.files, [0, *stops[:-1]], stops))


def _decode_into(split: Split, columns: Mapping[str, np.ndarray]) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False
    records = tf.data.TFRecordDataset(list(split.files), buffer_size=_READ_BUFFER_BYTES).batch(_DECODE_BATCH)
    # One more than there are cores keeps them busy while a batch is copied.
    workers = machine.granted_cores() + 1
    decoded = records.map(lambda batch: _columns_of(split, batch), num_parallel_calls=workers).prefetch(workers)
    start = 0
    for found in decoded.with_options(options).as_numpy_iterator():
        stop = start + len(found[LABEL])
        for name, column in columns.items():
            column[start:stop] = found[name]
        start = stop
    if start != split.num_examples:
        raise DamagedArtefactError(
            f"{Path(split.files[0]).parent}: manifest lists {split.num_examples} {split.name} records, found {start}. "
            'Run "make pipeline" to rebuild it.'
        )


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An empty array that begins on a 64-byte boundary, as TensorFlow's operations want it."""
    num_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    spare = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    return spare[-spare.ctypes.data % _ALIGNMENT :][:num_bytes].view(dtype).reshape(shape)
