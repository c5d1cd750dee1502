"""Records of one length: Examples ⇄ bytes, a whole batch at a time (the records' codec where every feature is fixed).

A record is a ``tf.train.Example``. Where each feature has one shape, and keys have one length, all records of a split
have the same length and differ only in the bytes of their values; a label's varint is given one width. Protobuf makes
the bytes around them once, as a template; writing and reading a batch is then array arithmetic. Every TFRecord and
protobuf reader takes the files as what they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tensorflow as tf

from pipeline.records.example import FRAME_HEAD_BYTES, FRAME_TAIL_BYTES, masked_checksums, serialize
from pipeline.records.features import KEY, LABEL, Feature, FeatureSpec, spec_from_json
from pipeline.records.rows import VARINT_BITS, Rows


@dataclass(frozen=True)
class FixedLayout:
    """Where each feature lies in a framed record; the same for every record of one split.

    ``spec`` has fixed features alone, ``num_labels`` bounds the label where there is one, ``key_bytes`` is the length
    of a key.
    """

    spec: FeatureSpec
    num_labels: int
    key_bytes: int

    @classmethod
    def of_manifest(cls, manifest: Mapping, split: str) -> "FixedLayout":
        """The layout of a split as the records' manifest describes it."""
        spec = spec_from_json(manifest["feature_spec"])
        return cls(spec, len(manifest["label_names"]), manifest["splits"][split]["key_bytes"])

    @cached_property
    def label_bytes(self) -> int:
        """Bytes of the varint that the greatest label takes; a smaller one is padded to it, as protobuf allows."""
        return max(1, -(-(self.num_labels - 1).bit_length() // VARINT_BITS))

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file, with TFRecord's length and checksums."""
        return len(self._template)

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Frame a batch of Examples as they stand in a TFRecord file.

        Args:
            columns: by feature, each (batch, …): values of the feature's shape and dtype; labels from 0 to
                num_labels - 1; keys as uint8 (batch, key_bytes).

        Returns:
            uint8 (batch, frame_bytes).
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

    def decode(self, frames: tf.Tensor) -> dict[str, tf.Tensor]:
        """The features of a batch of framed records but the keys; checksums are the manifest's business.

        Args:
            frames: uint8 (batch, frame_bytes).

        Returns:
            By feature, each (batch, …) of its shape and dtype; the label int32.
        """
        found = {}
        for name, place in self.rows.values.items():
            values = frames[:, place]
            if name == LABEL:
                found[name] = tf.reduce_sum(tf.cast(values & 0x7F, tf.int32) * self.rows.label_weights, axis=1)
            else:
                found[name] = _reshaped(values, self.spec[name])
        return found

    def columns(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        """The same of NumPy arrays; bytes are views."""
        return {name: self.rows.decoded(name, frames[:, place]) for name, place in self.rows.values.items()}

    @cached_property
    def rows(self) -> Rows:
        """Where each feature lies, for who only reads."""
        return Rows(self.spec, self.frame_bytes, self._places)

    @cached_property
    def _template(self) -> np.ndarray:
        record = np.frombuffer(serialize(self._filled(())), np.uint8)
        length = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
        head = np.concatenate([length, masked_checksums([length])[0]])
        return np.concatenate([head, record, np.zeros(FRAME_TAIL_BYTES, np.uint8)])

    @cached_property
    def _places(self) -> dict[str, slice]:
        """Where each feature's bytes lie in a frame: those that change when it alone does."""
        record = self._template[FRAME_HEAD_BYTES:-FRAME_TAIL_BYTES]
        found = {}
        for name in self.spec:
            changed = np.flatnonzero(np.frombuffer(serialize(self._filled((name,))), np.uint8) != record)
            first = FRAME_HEAD_BYTES + int(changed[0])
            found[name] = slice(first, first + len(changed))
        return found

    def _filled(self, others: Iterable[str]) -> dict[str, bytes | int]:
        """Values for each feature, every byte of which differs for the features named."""
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


def _reshaped(values: tf.Tensor, feature: Feature) -> tf.Tensor:
    if feature.dtype != "uint8":
        size = tf.as_dtype(feature.dtype).size
        values = tf.bitcast(tf.reshape(values, [tf.shape(values)[0], -1, size]), feature.dtype)
    return tf.reshape(values, [-1, *feature.shape])
