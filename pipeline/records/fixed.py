"""Records of one length: whole batches of examples to bytes and back by array arithmetic.

A record is a ``tf.train.Example``. If every feature has one shape and keys have one length, records differ only in the
bytes of their values. Labels are varints of one width. Protobuf writes a template once. Encoding and decoding a batch
then only copies columns. Every TFRecord and protobuf reader accepts the files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf

from pipeline.records.example import FRAME_HEAD_BYTES, FRAME_TAIL_BYTES, masked_checksums, serialize
from pipeline.records.features import KEY, LABEL, FeatureSpec
from pipeline.records.rows import VARINT_BITS, Rows


@dataclass(frozen=True)
class FixedLayout:
    """The layout of a framed record, the same for every record of one split.

    ``spec`` has fixed features only. ``num_labels`` bounds the label, if there is one. ``key_bytes`` is the length of
    a key.
    """

    spec: FeatureSpec
    num_labels: int
    key_bytes: int

    @cached_property
    def label_bytes(self) -> int:
        """Bytes of the varint of the greatest label. Smaller labels are padded to it, as protobuf allows."""
        return max(1, -(-(self.num_labels - 1).bit_length() // VARINT_BITS))

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file, including TFRecord's length and checksums."""
        return len(self._template)

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Encode a batch as framed records of a TFRecord file, uint8 (batch, frame_bytes).

        ``columns``: by feature, (batch, …) of its shape and dtype. Keys are uint8 (batch, key_bytes).
        """
        size = len(columns[KEY])
        frames = np.tile(self._template, (size, 1))
        for name, place in self._places.items():
            values = columns[name]
            if name == LABEL:
                shifts = VARINT_BITS * np.arange(self.label_bytes)
                frames[:, place] = (values[:, None] >> shifts) & 0x7F
                frames[:, place][:, :-1] |= 0x80
            else:
                frames[:, place] = np.ascontiguousarray(values).reshape(size, -1).view(np.uint8)
        frames[:, -FRAME_TAIL_BYTES:] = masked_checksums(frames[:, FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES])
        return frames

    @cached_property
    def rows(self) -> Rows:
        """The positions of the features, for readers."""
        return Rows(self.spec, self.frame_bytes, self._places)

    @cached_property
    def _template(self) -> np.ndarray:
        record = np.frombuffer(serialize(self._filled(())), np.uint8)
        length = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
        head = np.concatenate([length, masked_checksums([length])[0]])
        return np.concatenate([head, record, np.zeros(FRAME_TAIL_BYTES, np.uint8)])

    @cached_property
    def _places(self) -> dict[str, slice]:
        """The bytes of each feature in a frame: those that change if only this feature changes."""
        record = self._template[FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES]
        found = {}
        for name in self.spec:
            changed = np.flatnonzero(np.frombuffer(serialize(self._filled((name,))), np.uint8) != record)
            first = FRAME_HEAD_BYTES + int(changed[0])
            found[name] = slice(first, first + len(changed))
        return found

    def _filled(self, others: Iterable[str]) -> dict[str, bytes | int]:
        """Values of all features. For those named, every byte differs from the template's."""
        low = 1 << VARINT_BITS * (self.label_bytes - 1) if self.label_bytes > 1 else 0
        high = (1 << VARINT_BITS * self.label_bytes) - 1
        values: dict[str, bytes | int] = {}
        for name, feature in self.spec.items():
            if name == LABEL:
                values[name] = high if name in others else low
            else:
                num_bytes = self.key_bytes if name == KEY else feature.num_bytes
                values[name] = (b"\x7f" if name in others else b"\x00") * num_bytes
        return values


def decode(rows: Rows, frames: tf.Tensor) -> dict[str, tf.Tensor]:
    """All features but the key of framed records, uint8 (batch, frame_bytes); see ``Rows.columns``."""
    columns = {}
    for name, place in rows.values.items():
        values, feature = frames[:, place], rows.spec[name]
        if name == LABEL:
            columns[name] = tf.reduce_sum(tf.cast(values & 0x7F, tf.int32) * rows.label_weights, axis=1)
            continue
        if feature.dtype != "uint8":
            size = tf.as_dtype(feature.dtype).size
            values = tf.bitcast(tf.reshape(values, [tf.shape(values)[0], -1, size]), feature.dtype)
        columns[name] = tf.reshape(values, [-1, *feature.shape])
    return columns
