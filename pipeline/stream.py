"""Input stream: shards to a batched tf.data.Dataset of uint8 images (… → shards → stream → training → …).

Serialized records are batched first and then parsed, a whole batch in one operation and several batches in parallel.
Pixels stay uint8, a quarter of the bytes of float32, until the model rescales them on the device.

A split that fits in memory is read and parsed once. Each epoch is then a new permutation of all its examples, drawn
from (seed, epoch), and each batch one gather. A larger split is read anew each epoch: shards in a seeded order, then a
shuffle buffer. Either way an epoch's order depends on the seed and the epoch alone, so a run that is resumed sees the
batches it would have seen.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import tensorflow as tf

from pipeline.records import parse_batch

# Share of the memory free at the start that a split's pixels may take; the rest is for the model and the runtime.
MEMORY_SHARE = 0.5
SHUFFLE_BUFFER_EXAMPLES = 50_000
_READ_BUFFER_BYTES = 8 * 2**20
_PARSE_BATCH = 1_024
# Batches made ahead: enough to cover one call of several training steps, little memory (400 kB each for CIFAR-10).
_PREFETCH_BATCHES = 32


@dataclass(frozen=True)
class Split:
    """One split of published records: its shard files in order, number of examples and feature spec."""

    files: tuple[str, ...]
    num_examples: int
    spec: Mapping[str, Mapping]

    @classmethod
    def of_manifest(cls, folder: Path, manifest: Mapping, split: str) -> "Split":
        """The split as the records' manifest in ``folder`` describes it."""
        shards = sorted(
            (entry for entry in manifest["files"] if entry.get("split") == split),
            key=lambda entry: entry["shard_index"],
        )
        files = tuple(str(folder / shard["name"]) for shard in shards)
        return cls(files, manifest["splits"][split]["num_examples"], manifest["feature_spec"])

    def pixel_bytes(self) -> int:
        """Bytes of all images, decoded."""
        height, width, channels = self.spec["image"]["shape"]
        return self.num_examples * height * width * channels


class InputStream:
    """Batches of one split: ``training(epoch)`` shuffled, ``evaluation()`` in order and whole.

    Every dataset yields (uint8 images (batch, height, width, channels), int32 labels (batch,)).
    """

    def __init__(self, split: Split, *, global_batch_size: int, seed: int, in_memory: bool | None = None) -> None:
        """``in_memory=None`` keeps the split in memory where its pixels fit into half of what is free."""
        self.split = split
        self.global_batch_size = global_batch_size
        self.seed = seed
        fits = split.pixel_bytes() <= MEMORY_SHARE * psutil.virtual_memory().available
        self.in_memory = fits if in_memory is None else in_memory
        self._examples = _load(split) if self.in_memory else None

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split; a remainder is left out of training only."""
        return self.split.num_examples // self.global_batch_size

    def training(self, epoch: int) -> tf.data.Dataset:
        """One pass over the split in the order of (seed, epoch), without the remainder."""
        if self._examples is not None:
            order = _permutation(self.split.num_examples, self.seed, epoch)
            # Shuffle before the remainder is dropped: each epoch leaves out other examples.
            batches = tf.data.Dataset.from_tensor_slices(order).batch(self.global_batch_size, drop_remainder=True)
            return self._finish(batches, self._gather).apply(
                tf.data.experimental.assert_cardinality(self.steps_per_epoch)
            )
        files = tf.gather(tf.constant(self.split.files), _permutation(len(self.split.files), self.seed, epoch))
        records = tf.data.TFRecordDataset(files, buffer_size=_READ_BUFFER_BYTES).shuffle(
            min(SHUFFLE_BUFFER_EXAMPLES, self.split.num_examples), seed=self.seed * 100_003 + epoch
        )
        batches = records.batch(self.global_batch_size, drop_remainder=True)
        return self._finish(batches, self._parse).apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch))

    def evaluation(self) -> tf.data.Dataset:
        """One pass over the split in its stored order, to the last example."""
        if self._examples is not None:
            indices = tf.data.Dataset.range(self.split.num_examples).batch(self.global_batch_size)
            return self._finish(indices, self._gather)
        records = tf.data.TFRecordDataset(list(self.split.files), buffer_size=_READ_BUFFER_BYTES)
        return self._finish(records.batch(self.global_batch_size), self._parse)

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
        dataset = batches.map(to_examples, num_parallel_calls=_cores())
        return dataset.prefetch(_PREFETCH_BATCHES).with_options(options)

    def _gather(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        images, labels = self._examples
        return tf.gather(images, indices), tf.gather(labels, indices)

    def _parse(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return parse_batch(serialized, self.split.spec)


def _load(split: Split) -> tuple[tf.Tensor, tf.Tensor]:
    """All images and labels of a split, read sequentially: on few cores faster than interleaving files."""
    with tf.device("CPU:0"):
        records = tf.data.TFRecordDataset(list(split.files), buffer_size=_READ_BUFFER_BYTES).batch(_PARSE_BATCH)
        parsed = records.map(lambda serialized: parse_batch(serialized, split.spec), num_parallel_calls=_cores())
        images, labels = zip(*parsed.prefetch(_cores()), strict=True)
        return tf.concat(images, axis=0), tf.concat(labels, axis=0)


def _cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _permutation(size: int, seed: int, epoch: int) -> tf.Tensor:
    return tf.random.experimental.stateless_shuffle(tf.range(size), seed=[seed, epoch])
