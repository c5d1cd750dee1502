"""Blocks: any range of a split, read and decoded; what the Beam job calls on its workers.

Apart from ``resolve``, because reading needs TensorFlow and finding out what a source holds does not.

A prepared TFDS dataset is read from its own TFRecord files, a batch of serialized examples at a time, and decoded by
its own image feature. ``as_dataset`` parses example by example: the same 50,000 images took it 1.4 times as long.
"""

import os
from functools import cache

import numpy as np
import tensorflow as tf

from pipeline.errors import DamagedArtefactError
from pipeline.sources import SourceInfo, synthetic, tfds

_READ_BUFFER_BYTES = 8 * 2**20
# Small enough that a batch of decoded images stays in the processor's cache.
_DECODE_BATCH = 128


def read_block(
    info: SourceInfo, tfds_data_dir: str, split: str, start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Examples ``start`` to ``stop - 1`` of a split, in the source's own order.

    Returns:
        uint8 images (stop - start, height, width, channels) and int64 labels (stop - start,).

    Raises:
        DatasetUnavailableError: the prepared copy is gone and cannot be prepared again.
        DamagedArtefactError: the copy is of another version, or cannot be read to the end.
    """
    if info.origin == "synthetic":
        return synthetic.draw_block(split, start, stop)
    builder = _builder(info.dataset, info.version, tfds_data_dir)
    try:
        images, labels = zip(*_batches(builder, split, start, stop), strict=True)
    except (tf.errors.OpError, ValueError) as error:
        raise DamagedArtefactError(_unreadable(builder, split, str(error).splitlines()[0])) from error
    if sum(map(len, labels)) != stop - start:
        found = f"{sum(map(len, labels))} examples in [{start}:{stop}]"
        raise DamagedArtefactError(_unreadable(builder, split, found))
    return np.concatenate(images), np.concatenate(labels)


@cache
def _builder(dataset: str, version: str, data_dir: str) -> tfds.DatasetBuilder:
    """Opened once in a process, not for every block; prepares again where the copy has gone since."""
    builder = tfds.prepared_builder(dataset, data_dir)
    if str(builder.version) != version:
        raise DamagedArtefactError(
            f"{builder.data_path}: expected version {version} of {dataset}, found {builder.version}. "
            'Run "make pipeline" again: it takes up the version that is there.'
        )
    return builder


def _batches(builder: tfds.DatasetBuilder, split: str, start: int, stop: int) -> tf.data.NumpyIterator:
    image_key, label_key = tfds.supervised_keys(builder)
    feature = builder.info.features[image_key]
    spec = {image_key: tf.io.FixedLenFeature([], tf.string), label_key: tf.io.FixedLenFeature([], tf.int64)}

    def decode(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, spec)
        signature = tf.TensorSpec(feature.shape, tf.uint8)
        # Several batches are decoded at once; within one, in turn.
        images = tf.map_fn(
            feature.decode_example, parsed[image_key], parallel_iterations=1, fn_output_signature=signature
        )
        return images, parsed[label_key]

    records = _serialized(builder, split, start, stop).batch(_DECODE_BATCH)
    # One more than there are cores keeps them busy while a batch is handed over.
    workers = len(os.sched_getaffinity(0)) + 1
    decoded = records.map(decode, num_parallel_calls=workers, deterministic=True).prefetch(workers)
    options = tf.data.Options()
    # See stream.py: an autotuned iterator is slow to close, and here one is opened for every block.
    options.autotune.enabled = False
    return decoded.with_options(options).as_numpy_iterator()


def _serialized(builder: tfds.DatasetBuilder, split: str, start: int, stop: int) -> tf.data.Dataset:
    """The range's records, one file after the other: the n-th example does not depend on how a split is cut."""
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
    for part in builder.info.splits[f"{split}[{start}:{stop}]"].file_instructions:
        records = tf.data.TFRecordDataset(part.filename, buffer_size=_READ_BUFFER_BYTES)
        dataset = dataset.concatenate(records.skip(part.skip).take(part.take))
    return dataset


def _unreadable(builder: tfds.DatasetBuilder, split: str, found: str) -> str:
    return (
        f"{builder.data_path}: the {split} split cannot be read as its dataset_info.json describes it: {found}. "
        "Delete that folder and run again to prepare it anew."
    )
