"""Random numbers for a batch that depend only on seed, epoch, operation and example.

TensorFlow's stateless generators use a seed per tensor, so the numbers of an example would depend on its position in
the batch. Here each number is a hash, the finalizer of SplitMix64 (Steele, Lea and Flood 2014).
"""

import hashlib

import tensorflow as tf

_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIER_1, _MULTIPLIER_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Random bits of a float32 between 0 and 1.
_DIGITS = 24


class Draws:
    """Random numbers of an operation on a batch of examples in an epoch."""

    def __init__(self, indices: tf.Tensor, *, seed: int, epoch: tf.Tensor | int, operation: str) -> None:
        """Seed the numbers. ``indices``, int (batch,), are positions in the stored order, and ``epoch`` is int ()."""
        self.epoch = tf.cast(epoch, tf.int64)
        self._of = {"indices": indices, "seed": seed, "operation": operation}
        name = f"{seed} {operation}".encode()
        key = _constant(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little"))
        key = _mixed(tf.bitwise.bitwise_xor(_mixed(tf.cast(epoch, tf.uint64)), key))
        self._keys = _mixed(tf.bitwise.bitwise_xor(_mixed(tf.cast(indices, tf.uint64)), key))

    def of_epoch(self, epoch: int) -> "Draws":
        """Numbers of the same operation and examples in another epoch."""
        return Draws(epoch=epoch, **self._of)

    def uniform(self, number: int, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Draw float32 (batch,) in [``low``, ``high``). ``number`` distinguishes the draws of an operation."""
        bits = _mixed(self._keys + _constant((number + 1) * _GOLDEN % 2**64))
        share = tf.cast(tf.bitwise.right_shift(bits, _constant(64 - _DIGITS)), tf.float32) * 2.0**-_DIGITS
        return low + share * (high - low)

    def integer(self, number: int, low: int, high: int) -> tf.Tensor:
        """Draw int32 (batch,) in [``low``, ``high``]."""
        count = high - low + 1
        return low + tf.minimum(tf.cast(self.uniform(number) * count, tf.int32), count - 1)


def _mixed(bits: tf.Tensor) -> tf.Tensor:
    bits = bits + _constant(_GOLDEN)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(30))) * _constant(_MULTIPLIER_1)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(27))) * _constant(_MULTIPLIER_2)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(31)))


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
