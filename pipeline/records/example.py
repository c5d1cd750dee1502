"""Encoding and decoding of ``tf.train.Example`` records, and the framing of TFRecord files.

Records of one length are encoded and decoded in whole batches. They differ only in the bytes of their values, and
labels are varints of one width. Protobuf writes a template once. A batch then only copies columns. Every TFRecord and
protobuf reader accepts the files.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import google_crc32c
import numpy as np
import tensorflow as tf

from pipeline.records.features import KEY, LABEL, FeatureSpec, content_name
from pipeline.records.rows import VARINT_BITS, Rows

# A TFRecord frame has a uint64 length and its uint32 masked CRC-32C before the record, and the CRC-32C of the record
# after it.
FRAME_HEAD_BYTES, FRAME_TAIL_BYTES = 12, 4
_MASK_DELTA = 0xA282EAD8


def serialize(values: Mapping[str, bytes | int]) -> bytes:
    """Serialize one record. Bytes become a ``bytes_list`` of one value, integers an ``int64_list``."""
    example = tf.train.Example()
    features = example.features.feature
    for name, value in values.items():
        if isinstance(value, bytes):
            features[name].bytes_list.value.append(value)
        else:
            features[name].int64_list.value.append(value)
    # A map field has no order. Without this option, the bytes of equal Examples may differ.
    return example.SerializeToString(deterministic=True)


def frame(record: bytes) -> bytes:
    """Add the frame of a TFRecord file to a record."""
    length = len(record).to_bytes(8, "little")
    head, tail = (masked_checksums([content])[0].tobytes() for content in (length, record))
    return length + head + record + tail


def masked_checksums(records: Iterable[bytes | np.ndarray]) -> np.ndarray:
    """Masked CRC-32C of each record, as uint8 (records, 4), little-endian."""
    crc = np.array([google_crc32c.value(record) for record in records], np.uint32)
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)
    return masked.astype("<u4").view(np.uint8).reshape(-1, 4)


def parse_batch(serialized: tf.Tensor, spec: FeatureSpec) -> dict[str, tf.Tensor]:
    """Parse all features except the key of a batch of serialized ``tf.train.Example`` records, string (batch,).

    Integers become int32 (batch,), other raw features (batch, *shape), and all others string (batch,).
    """
    kinds = {name: tf.int64 if spec[name].is_number else tf.string for name in spec if name != KEY}
    parsed = tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()})
    for name, values in parsed.items():
        if spec[name].is_number:
            parsed[name] = tf.cast(values, tf.int32)
        elif spec[name].is_fixed:
            parsed[name] = tf.reshape(tf.io.decode_raw(values, spec[name].dtype), [-1, *spec[name].shape])
    return parsed


def add_labels(counts: np.ndarray, rows: np.ndarray, columns: Mapping[str, np.ndarray | Sequence[bytes]]) -> None:
    """Count the labels of a batch in ``counts``, int64 (rows, labels). ``rows`` is int (batch,).

    The labels of a sequence are all its values except the first. Each value of a text is thus a label once. An example
    with a value per label has the labels that are not 0, or all numeric targets.
    """
    labels = np.asarray(columns[LABEL] if LABEL in columns else columns[content_name(columns)][:, 1:])
    if LABEL in columns and labels.ndim == 2:
        np.add.at(counts, rows, (labels != 0) | (labels.dtype.kind == "f"))
    else:
        np.add.at(counts, (rows[:, None], labels.reshape(len(labels), -1).astype(np.int64)), 1)


@dataclass(frozen=True)
class FixedLayout:
    """The layout of the framed records of a split with fixed features and keys. Labels are below ``num_labels``."""

    spec: FeatureSpec
    num_labels: int
    key_bytes: int

    @cached_property
    def label_bytes(self) -> int:
        """Bytes of the varint of the largest label. Smaller labels are padded, which protobuf allows."""
        return max(1, -(-(self.num_labels - 1).bit_length() // VARINT_BITS))

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file, including the frame."""
        return len(self._template)

    @cached_property
    def rows(self) -> Rows:
        """Positions of the features, for readers. A feature's bytes are those that change with its value."""
        record, slices = self._template[FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES], {}
        for name in self.spec:
            changed = np.flatnonzero(self._record(name) != record)
            start = FRAME_HEAD_BYTES + int(changed[0])
            slices[name] = slice(start, start + len(changed))
        return Rows(self.spec, self.frame_bytes, slices)

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Encode a batch as framed records of a TFRecord file, uint8 (batch, frame_bytes).

        ``columns`` has (batch, …) per feature, int64 (batch,) for integers and uint8 (batch, key_bytes) for keys.
        """
        size = len(columns[KEY])
        frames = np.tile(self._template, (size, 1))
        for name, bounds in self.rows.slices.items():
            if self.spec[name].is_number:
                shifts = VARINT_BITS * np.arange(self.label_bytes)
                frames[:, bounds] = (columns[name][:, None] >> shifts) & 0x7F
                frames[:, bounds][:, :-1] |= 0x80
            else:
                frames[:, bounds] = np.ascontiguousarray(columns[name]).reshape(size, -1).view(np.uint8)
        frames[:, -FRAME_TAIL_BYTES:] = masked_checksums(frames[:, FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES])
        return frames

    @cached_property
    def _template(self) -> np.ndarray:
        record = self._record()
        length = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
        return np.concatenate([length, masked_checksums([length])[0], record, np.zeros(FRAME_TAIL_BYTES, np.uint8)])

    def _record(self, changed: str = "") -> np.ndarray:
        """A record in which every byte of the feature ``changed`` differs from the template."""
        low = 1 << VARINT_BITS * (self.label_bytes - 1) if self.label_bytes > 1 else 0
        high = (1 << VARINT_BITS * self.label_bytes) - 1
        values: dict[str, bytes | int] = {}
        for name, feature in self.spec.items():
            number, byte = (high, b"\x7f") if name == changed else (low, b"\x00")
            num_bytes = self.key_bytes if name == KEY else 0 if feature.is_number else feature.num_bytes
            values[name] = number if feature.is_number else byte * num_bytes
        return np.frombuffer(serialize(values), np.uint8)


def decode_rows(rows: Rows, frames: tf.Tensor) -> dict[str, tf.Tensor]:
    """Like ``Rows.columns``, but for a tensor of framed records, uint8 (batch, frame_bytes)."""
    columns = {}
    for name, bounds in rows.values.items():
        feature, values = rows.spec[name], frames[:, bounds]
        if feature.is_number:
            columns[name] = tf.reduce_sum(tf.cast(values & 0x7F, tf.int32) * rows.label_weights, axis=1)
            continue
        if feature.dtype != "uint8":
            value_bytes = feature.num_bytes // math.prod(feature.shape)
            values = tf.bitcast(tf.reshape(values, [-1, *feature.shape, value_bytes]), feature.dtype)
        columns[name] = tf.reshape(values, [-1, *feature.shape])
    return columns
