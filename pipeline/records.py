"""Records: one tf.train.Example ⇄ bytes; the second step of the data's way (source → records → shards → …).

The feature spec here is what writer and reader share. Pixels are stored raw: decoding a record is then a reshape, not
an image codec, and the records of one dataset have the same length but for the label.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf


def feature_spec(image_shape: tuple[int, int, int]) -> dict[str, dict]:
    """Name → shape and dtype of the features of one record, as plain JSON data."""
    return {
        "image": {"shape": list(image_shape), "dtype": "uint8"},
        "key": {"shape": [], "dtype": "string"},
        "label": {"shape": [], "dtype": "int64"},
    }


def serialize(image: bytes, label: int, key: str) -> bytes:
    """One record: raw uint8 pixels (row-major height, width, channels), label and key as a tf.train.Example."""
    example = tf.train.Example()
    features = example.features.feature
    features["image"].bytes_list.value.append(image)
    features["key"].bytes_list.value.append(key.encode())
    features["label"].int64_list.value.append(label)
    # A map field has no order of its own: without this equal Examples may differ in bytes.
    return example.SerializeToString(deterministic=True)


def parse_batch(serialized: tf.Tensor, spec: Mapping[str, Mapping]) -> tuple[tf.Tensor, tf.Tensor]:
    """Parse a whole batch at once.

    Args:
        serialized: string (batch,), one record each.
        spec: the feature spec of the records' manifest.

    Returns:
        uint8 images (batch, height, width, channels) and int32 labels (batch,).
    """
    # The key is left out: nothing behind this point asks for it, and parsing it costs time.
    features = tf.io.parse_example(
        serialized,
        {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    pixels = tf.io.decode_raw(features["image"], tf.uint8)
    return tf.reshape(pixels, [-1, *spec["image"]["shape"]]), tf.cast(features["label"], tf.int32)


def write_tfrecord(path: Path, records: Iterable[bytes]) -> None:
    """Write one TFRecord file, whole or not at all: a runner that runs a bundle twice leaves one good file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with tf.io.TFRecordWriter(str(temporary)) as writer:
        for record in records:
            writer.write(record)
    os.replace(temporary, path)
