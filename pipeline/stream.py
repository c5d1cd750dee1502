"""Input stream: shards to a batched tf.data.Dataset of uint8 images (… → shards → stream → training → …).

All records of a split have one length, so a shard is an array of rows: it is read as one piece and a batch is taken
apart by array slices, with no work per record. Pixels stay uint8, a quarter of the bytes of float32, until the model
rescales them on the device.

A split that fits in memory is read once. Each epoch is then a new permutation of all its examples, drawn from
(seed, epoch), and each batch one gather. A larger split is read anew each epoch: shards in a seeded order, then a
shuffle buffer. Either way an epoch's order depends on the seed and the epoch alone, so a run that is resumed sees the
batches it would have seen.

The checksum of each record is left to ``make verify``: training checks the sha256 of every file before its first step.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.errors import DamagedArtefactError
from pipeline.records import RecordLayout

# Share of the memory free at the start that a split's records may take; the rest is for the model and the runtime.
MEMORY_SHARE = 0.5
# Records are stored shuffled, and the order of the shards changes with each epoch: this only mixes neighbours. Small,
# for memory that is touched for the first time costs more than reading what goes there.
SHUFFLE_BUFFER_EXAMPLES = 10_000
_READ_BUFFER_BYTES = 8 * 2**20
_ALIGNMENT = 64
# Batches made ahead: enough to cover one call of several training steps, little memory (400 kB each for CIFAR-10).
_PREFETCH_BATCHES = 32


@dataclass(frozen=True)
class Split:
    """One split of published records: its shard files in order, number of examples, and how a record is laid out."""

    files: tuple[str, ...]
    num_examples: int
    layout: RecordLayout

    @classmethod
    def of_manifest(cls, folder: Path, manifest: Mapping, split: str) -> "Split":
        """The split as the records' manifest in ``folder`` describes it."""
        shards = sorted(
            (entry for entry in manifest["files"] if entry.get("split") == split),
            key=lambda entry: entry["shard_index"],
        )
        files = tuple(str(folder / shard["name"]) for shard in shards)
        return cls(files, manifest["splits"][split]["num_examples"], RecordLayout.of_manifest(manifest, split))

    def num_bytes(self) -> int:
        """Bytes of all records as they lie in their files, and in memory."""
        return self.num_examples * self.layout.frame_bytes


class InputStream:
    """Batches of one split: ``training(epoch)`` shuffled, ``evaluation()`` in order and whole.

    Every dataset yields (uint8 images (batch, height, width, channels), int32 labels (batch,)).
    """

    def __init__(self, split: Split, *, global_batch_size: int, seed: int, in_memory: bool | None = None) -> None:
        """``in_memory=None`` keeps the split in memory where its records fit into half of what is free."""
        self.split = split
        self.global_batch_size = global_batch_size
        self.seed = seed
        fits = split.num_bytes() <= MEMORY_SHARE * machine.free_memory_bytes()
        self.in_memory = fits if in_memory is None else in_memory
        self._frames = _load(split) if self.in_memory else None

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split; a remainder is left out of training only."""
        return self.split.num_examples // self.global_batch_size

    def training(self, epoch: int) -> tf.data.Dataset:
        """One pass over the split in the order of (seed, epoch), without the remainder."""
        if self._frames is not None:
            order = _permutation(self.split.num_examples, self.seed, epoch)
            # Shuffle before the remainder is dropped: each epoch leaves out other examples.
            indices = tf.data.Dataset.from_tensor_slices(order).batch(self.global_batch_size, drop_remainder=True)
            batches = self._finish(indices, self._gather)
        else:
            files = tf.gather(tf.constant(self.split.files), _permutation(len(self.split.files), self.seed, epoch))
            records = self._records(files).shuffle(SHUFFLE_BUFFER_EXAMPLES, seed=self.seed * 100_003 + epoch)
            batches = self._finish(records.batch(self.global_batch_size, drop_remainder=True), self._split_up)
        return batches.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch))

    def evaluation(self) -> tf.data.Dataset:
        """One pass over the split in its stored order, to the last example."""
        if self._frames is not None:
            indices = tf.data.Dataset.range(self.split.num_examples).batch(self.global_batch_size)
            return self._finish(indices, self._gather)
        return self._finish(self._records(list(self.split.files)).batch(self.global_batch_size), self._split_up)

    def _records(self, files: object) -> tf.data.Dataset:
        return tf.data.FixedLengthRecordDataset(
            files, record_bytes=self.split.layout.frame_bytes, buffer_size=_READ_BUFFER_BYTES
        )

    def _finish(
        self, batches: tf.data.Dataset, to_examples: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    ) -> tf.data.Dataset:
        options = tf.data.Options()
        options.deterministic = True
        # An iterator whose parallelism TensorFlow 2.21 tunes is not closed before the tuner's next period, which
        # doubles from 10 ms to a minute: an epoch of 6 s took 10.2 s, the next 20.5 s. Fixed numbers cost nothing here.
        options.autotune.enabled = False
        # Batches are ready made and all differ: cutting files over replicas would only give them other examples.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = batches.map(to_examples, num_parallel_calls=machine.granted_cores())
        return dataset.prefetch(_PREFETCH_BATCHES).with_options(options)

    def _gather(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.split.layout.decode(tf.gather(self._frames, indices))

    def _split_up(self, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        frames = tf.io.decode_raw(records, tf.uint8, fixed_length=self.split.layout.frame_bytes)
        return self.split.layout.decode(frames)


def _load(split: Split) -> tf.Tensor:
    """All framed records of a split: uint8 (num_examples, frame_bytes), read straight to where they stay."""
    width = split.layout.frame_bytes
    # TensorFlow's operations want tensors that begin on a 64-byte boundary.
    spare = np.empty(split.num_bytes() + _ALIGNMENT, np.uint8)
    content = spare[-spare.ctypes.data % _ALIGNMENT :][: split.num_bytes()]
    sizes = [Path(file).stat().st_size for file in split.files]
    if sum(sizes) != split.num_bytes() or any(size % width for size in sizes):
        raise DamagedArtefactError(
            f"{Path(split.files[0]).parent}: manifest lists {split.num_examples} {split.layout.split} records of "
            f'{width} bytes each, found {sum(sizes)} bytes. Run "make pipeline" to rebuild it.'
        )
    stops = np.cumsum(sizes)
    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        list(pool.map(_read_into, split.files, np.split(content, stops[:-1])))
    # As it is: convert_to_tensor would copy it, which takes longer than reading.
    return tf.experimental.dlpack.from_dlpack(content.reshape(-1, width).__dlpack__())


def _read_into(file: str, content: np.ndarray) -> None:
    with open(file, "rb", buffering=0) as source:
        place = 0
        while place < len(content):
            place += source.readinto(content[place:])


def _permutation(size: int, seed: int, epoch: int) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, epoch])
