"""Records of any length: ``tf.train.Example`` to bytes and back, and the frame of TFRecord files."""

from collections.abc import Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
import tensorflow as tf

from pipeline.records.features import KEY, LABEL, FeatureSpec, content_name

# TFRecord's frame: uint64 length and uint32 masked CRC-32C of it before the record, uint32 masked CRC-32C after it.
FRAME_HEAD_BYTES = 12
FRAME_TAIL_BYTES = 4
_MASK_DELTA = 0xA282EAD8


def serialize(values: Mapping[str, bytes | int]) -> bytes:
    """One record as protobuf writes it: bytes as a ``bytes_list`` of one value, integers as an ``int64_list``."""
    example = tf.train.Example()
    features = example.features.feature
    for name, value in values.items():
        if isinstance(value, bytes):
            features[name].bytes_list.value.append(value)
        else:
            features[name].int64_list.value.append(value)
    # A map field has no order of its own: without this equal Examples may differ in bytes.
    return example.SerializeToString(deterministic=True)


def frame(record: bytes) -> bytes:
    """A record with the frame of a TFRecord file."""
    length = len(record).to_bytes(8, "little")
    head, tail = (masked_checksums([part])[0].tobytes() for part in (length, record))
    return length + head + record + tail


def masked_checksums(records: Iterable[bytes | np.ndarray]) -> np.ndarray:
    """TFRecord's masked CRC-32C of each record: uint8 (records, 4), little-endian."""
    crc = np.array([google_crc32c.value(record) for record in records], np.uint32)
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)
    return masked.astype("<u4").view(np.uint8).reshape(-1, 4)


def parse_batch(serialized: tf.Tensor, spec: FeatureSpec) -> dict[str, tf.Tensor]:
    """Parse a batch of any ``tf.train.Example``, string (batch,).

    Returns:
        By feature but the key: raw uint8 features (batch, *shape), labels int32 (batch,), others string (batch,).
    """
    kinds = {name: tf.int64 if name == LABEL else tf.string for name in spec if name != KEY}
    parsed = tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()})
    for name, values in parsed.items():
        if name == LABEL:
            parsed[name] = tf.cast(values, tf.int32)
        elif spec[name].is_fixed:
            parsed[name] = tf.reshape(tf.io.decode_raw(values, tf.uint8), [-1, *spec[name].shape])
    return parsed


def targets(columns: Mapping[str, np.ndarray | Sequence[bytes]]) -> np.ndarray:
    """The labels of a batch: int64 (batch, predictions).

    Of a sequence these are all values but the first, so that over all examples each value counts once.
    """
    labels = columns[LABEL][:, None] if LABEL in columns else columns[content_name(columns)][:, 1:]
    return np.asarray(labels).astype(np.int64)
