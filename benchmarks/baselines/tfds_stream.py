"""TensorFlow Datasets' guide to training with Keras: load, map, cache, shuffle, batch, prefetch.

tensorflow.org/datasets/keras_example. The map only casts the label, so that both streams yield the same. Once of the
copy that TFDS prepared itself, PNG to be decoded, and once of our records, the same bytes that our stream reads.
"""

from pathlib import Path

import tensorflow as tf
import tensorflow_datasets as tfds


def prepared_dataset(data_dir: str, batch_size: int) -> tf.data.Dataset:
    """uint8 images (batch, 32, 32, 3) and int32 labels (batch,) of CIFAR-10's train split as TFDS prepared it."""
    return _dataset(tfds.builder("cifar10", data_dir=data_dir or None), batch_size)


def records_dataset(folder: Path, batch_size: int) -> tf.data.Dataset:
    """The same of our records: raw pixels."""
    return _dataset(tfds.builder_from_directory(folder), batch_size)


def _dataset(builder: tfds.core.DatasetBuilder, batch_size: int) -> tf.data.Dataset:
    examples = builder.as_dataset(split="train", shuffle_files=True, as_supervised=True)
    examples = examples.map(lambda image, label: (image, tf.cast(label, tf.int32)), num_parallel_calls=tf.data.AUTOTUNE)
    examples = examples.cache().shuffle(builder.info.splits["train"].num_examples)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)
