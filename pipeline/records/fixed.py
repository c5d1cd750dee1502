"""Records: Examples ⇄ bytes, a whole batch at a time; the data's second step (source → records → shards → …).

A record is a ``tf.train.Example`` of three features: raw uint8 pixels, label and key. Images of one dataset have one
size, keys one length, and the label's varint is given one width, so all records of a split have the same length and
differ only in the bytes of these three. Protobuf makes the bytes around them once, as a template; writing and
reading a batch is then array arithmetic. Every TFRecord and protobuf reader takes the files as what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import google_crc32c
import numpy as np
import tensorflow as tf

from pipeline.records.keys import INDEX_DIGITS, example_key

# TFRecord's frame: uint64 length and uint32 masked CRC-32C of it before the record, uint32 masked CRC-32C after it.
_HEAD_BYTES = 12
_TAIL_BYTES = 4
_MASK_DELTA = 0xA282EAD8
_VARINT_BITS = 7


def feature_spec(image_shape: tuple[int, int, int]) -> dict[str, dict]:
    """Name → shape and dtype of the features of one record, as plain JSON data."""
    return {
        "image": {"shape": list(image_shape), "dtype": "uint8"},
        "key": {"shape": [], "dtype": "string"},
        "label": {"shape": [], "dtype": "int64"},
    }


def example_keys(split: str, indices: np.ndarray) -> np.ndarray:
    """``example_key`` of each index: uint8 (batch, bytes of a key)."""
    digits = indices[:, None] // 10 ** np.arange(INDEX_DIGITS - 1, -1, -1) % 10 + ord("0")
    keys = np.empty((len(indices), len(example_key(split, 0))), np.uint8)
    keys[:, :-INDEX_DIGITS] = np.frombuffer(example_key(split, 0)[:-INDEX_DIGITS].encode(), np.uint8)
    keys[:, -INDEX_DIGITS:] = digits
    return keys


def serialize(image: bytes, label: int, key: str) -> bytes:
    """One record as protobuf writes it: raw uint8 pixels (row-major height, width, channels), label and key."""
    example = tf.train.Example()
    features = example.features.feature
    features["image"].bytes_list.value.append(image)
    features["key"].bytes_list.value.append(key.encode())
    features["label"].int64_list.value.append(label)
    # A map field has no order of its own: without this equal Examples may differ in bytes.
    return example.SerializeToString(deterministic=True)


@dataclass(frozen=True)
class RecordLayout:
    """Where image, key and label lie in a framed record; the same for every record of one split.

    ``image_shape`` is (height, width, channels), ``num_labels`` bounds the labels, ``split`` gives the key its length.
    """

    image_shape: tuple[int, int, int]
    num_labels: int
    split: str

    @classmethod
    def of_manifest(cls, manifest: Mapping, split: str) -> "RecordLayout":
        """The layout of a split as the records' manifest describes it."""
        return cls(tuple(manifest["feature_spec"]["image"]["shape"]), len(manifest["label_names"]), split)

    @cached_property
    def label_bytes(self) -> int:
        """Bytes of the varint that the greatest label takes; a smaller one is padded to it, as protobuf allows."""
        return max(1, -(-(self.num_labels - 1).bit_length() // _VARINT_BITS))

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one record in its file, with TFRecord's length and checksums."""
        return len(self._template)

    def encode(self, images: np.ndarray, labels: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Frame a batch of Examples as they stand in a TFRecord file.

        Args:
            images: uint8 (batch, height, width, channels).
            labels: integers (batch,), 0 to num_labels - 1.
            keys: uint8 (batch, bytes of a key), of ``example_keys``.

        Returns:
            uint8 (batch, frame_bytes).
        """
        frames = np.tile(self._template, (len(images), 1))
        frames[:, self._image] = images.reshape(len(images), -1)
        frames[:, self._key] = keys
        shifts = _VARINT_BITS * np.arange(self.label_bytes)
        frames[:, self._label] = (labels[:, None] >> shifts) & 0x7F
        frames[:, self._label][:, :-1] |= 0x80
        frames[:, -_TAIL_BYTES:] = _masked(map(google_crc32c.value, frames[:, _HEAD_BYTES:-_TAIL_BYTES]))
        return frames

    def decode(self, frames: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The images and labels of a batch of framed records; checksums are the manifest's business.

        Args:
            frames: uint8 (batch, frame_bytes).

        Returns:
            uint8 images (batch, height, width, channels) and int32 labels (batch,).
        """
        # The key is left out: nothing behind this point asks for it.
        images = tf.reshape(frames[:, self._image], [-1, *self.image_shape])
        return images, tf.reduce_sum(tf.cast(frames[:, self._label] & 0x7F, tf.int32) * self._label_weights, axis=1)

    def columns(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of NumPy arrays; the images are a view."""
        images = frames[:, self._image].reshape(-1, *self.image_shape)
        return images, (frames[:, self._label] & 0x7F).astype(np.int32) @ self._label_weights

    @cached_property
    def _label_weights(self) -> np.ndarray:
        return (1 << _VARINT_BITS * np.arange(self.label_bytes)).astype(np.int32)

    @cached_property
    def _template(self) -> np.ndarray:
        record = self._record(0x00, 1 << _VARINT_BITS * (self.label_bytes - 1) if self.label_bytes > 1 else 0)
        length = np.frombuffer(len(record).to_bytes(8, "little"), np.uint8)
        head = np.concatenate([length, _masked([google_crc32c.value(length)])[0]])
        return np.concatenate([head, record, np.zeros(_TAIL_BYTES, np.uint8)])

    @cached_property
    def _varying(self) -> np.ndarray:
        """Places of the bytes in which two records can differ, image before key before label as protobuf sorts them."""
        other = self._record(0x7F, (1 << _VARINT_BITS * self.label_bytes) - 1)
        return np.flatnonzero(self._template[_HEAD_BYTES:-_TAIL_BYTES] != other) + _HEAD_BYTES

    def _record(self, fill: int, label: int) -> np.ndarray:
        key = bytes([fill]) * len(example_key(self.split, 0))
        return np.frombuffer(serialize(bytes([fill]) * self._image_bytes, label, key.decode()), np.uint8)

    @cached_property
    def _image_bytes(self) -> int:
        return int(np.prod(self.image_shape))

    @cached_property
    def _image(self) -> slice:
        first = int(self._varying[0])
        return slice(first, first + self._image_bytes)

    @cached_property
    def _key(self) -> slice:
        first = int(self._varying[self._image_bytes])
        return slice(first, first + len(example_key(self.split, 0)))

    @cached_property
    def _label(self) -> slice:
        first = int(self._varying[-self.label_bytes])
        return slice(first, first + self.label_bytes)


def parse_batch(serialized: tf.Tensor, spec: Mapping[str, Mapping]) -> tuple[tf.Tensor, tf.Tensor]:
    """Parse a batch as any ``tf.train.Example``, without knowing the layout: what verification reads with.

    Args:
        serialized: string (batch,), one record each.
        spec: the feature spec of the records' manifest.

    Returns:
        uint8 images (batch, height, width, channels) and int32 labels (batch,).
    """
    features = tf.io.parse_example(
        serialized,
        {
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    pixels = tf.io.decode_raw(features["image"], tf.uint8)
    return tf.reshape(pixels, [-1, *spec["image"]["shape"]]), tf.cast(features["label"], tf.int32)


def _masked(checksums: object) -> np.ndarray:
    """TFRecord's mask of each CRC-32C: uint8 (batch, 4), little-endian."""
    crc = np.array(list(checksums), np.uint32)
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(_MASK_DELTA)
    return masked.astype("<u4").view(np.uint8).reshape(-1, 4)
