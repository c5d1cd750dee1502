"""Records of one length: whole batches of examples to bytes and back by array arithmetic.

A record is a ``tf.train.Example``. If every feature has one shape and keys have one length, records differ only in the
bytes of their values. Labels are varints of one width. Protobuf writes a template once. Encoding and decoding a batch
then only copies columns. Every TFRecord and protobuf reader accepts the files.
"""

from collections.abc import Mapping
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

    @cached_property
    def rows(self) -> Rows:
        """The positions of the features, for readers: the bytes that change if only this feature changes."""
        record, places = self._template[FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES], {}
        for name in self.spec:
            changed = np.flatnonzero(self._record(name) != record)
            first = FRAME_HEAD_BYTES + int(changed[0])
            places[name] = slice(first, first + len(changed))
        return Rows(self.spec, self.frame_bytes, places)

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Encode a batch as framed records of a TFRecord file, uint8 (batch, frame_bytes).

        ``columns``: by feature, uint8 (batch, …), labels int64 (batch,), keys uint8 (batch, key_bytes).
        """
        size = len(columns[KEY])
        frames = np.tile(self._template, (size, 1))
        for name, place in self.rows.places.items():
            if name == LABEL:
                shifts = VARINT_BITS * np.arange(self.label_bytes)
                frames[:, place] = (columns[name][:, None] >> shifts) & 0x7F
                frames[:, place][:, :-1] |= 0x80
            else:
                frames[:, place] = columns[name].reshape(size, -1)
        frames[:, -FRAME_TAIL_BYTES:] = masked_checksums(frames[:, FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES])
        return frames

    @cached_property
    def _template(self) -> np.ndarray:
        record = self._record()
        length = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
        return np.concatenate([length, masked_checksums([length])[0], record, np.zeros(FRAME_TAIL_BYTES, np.uint8)])

    def _record(self, other: str = "") -> np.ndarray:
        """A record. Every byte of the feature named differs from that of the template."""
        low = 1 << VARINT_BITS * (self.label_bytes - 1) if self.label_bytes > 1 else 0
        high = (1 << VARINT_BITS * self.label_bytes) - 1
        values: dict[str, bytes | int] = {}
        for name, feature in self.spec.items():
            if name == LABEL:
                values[name] = high if name == other else low
            else:
                num_bytes = self.key_bytes if name == KEY else feature.num_bytes
                values[name] = (b"\x7f" if name == other else b"\x00") * num_bytes
        return np.frombuffer(serialize(values), np.uint8)


def decode(rows: Rows, frames: tf.Tensor) -> dict[str, tf.Tensor]:
    """``Rows.columns`` of framed records as tensors, uint8 (batch, frame_bytes)."""
    columns = {}
    for name, place in rows.values.items():
        if name == LABEL:
            label = tf.cast(frames[:, place] & 0x7F, tf.int32)
            columns[name] = tf.reduce_sum(label * rows.label_weights, axis=1)
        else:
            columns[name] = tf.reshape(frames[:, place], [-1, *rows.spec[name].shape])
    return columns
