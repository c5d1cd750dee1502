"""Draws: random numbers for a whole batch, of which each depends on (seed, epoch, operation, example) alone.

TensorFlow's stateless generators take one seed for all the numbers of a tensor, so that an example's numbers would
depend on its place in the batch. Here a number is a hash of what it belongs to: the finalizer of SplitMix64 (Steele,
Lea and Flood 2014), a few integer operations for a batch. The example is known by its place in the stored order.
"""

import hashlib

import tensorflow as tf

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# What a float32 holds of a number between 0 and 1.
_DIGITS = 24


class Draws:
    """The random numbers of one operation on a batch of examples in one epoch."""

    def __init__(self, places: tf.Tensor, *, seed: int, epoch: tf.Tensor | int, operation: str) -> None:
        """``places``: int (batch,), where the examples stand in the stored order of their split; ``epoch``: int ()."""
        #: int64 (): which one, from 0.
        self.epoch = tf.cast(epoch, tf.int64)
        self._of = {"places": places, "seed": seed, "operation": operation}
        name = f"{seed} {operation}".encode()
        key = _constant(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little"))
        key = _mixed(tf.bitwise.bitwise_xor(_mixed(tf.cast(epoch, tf.uint64)), key))
        self._keys = _mixed(tf.bitwise.bitwise_xor(_mixed(tf.cast(places, tf.uint64)), key))

    def of_epoch(self, epoch: int) -> "Draws":
        """Those of the same operation on the same examples in another epoch."""
        return Draws(epoch=epoch, **self._of)

    def uniform(self, number: int, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """float32 (batch,), from ``low`` up to ``high``; ``number`` tells the draws of one operation apart."""
        bits = _mixed(self._keys + _constant((number + 1) * _GOLDEN % 2**64))
        share = tf.cast(tf.bitwise.right_shift(bits, _constant(64 - _DIGITS)), tf.float32) * 2.0**-_DIGITS
        return low + share * (high - low)

    def integer(self, number: int, low: int, high: int) -> tf.Tensor:
        """int32 (batch,), from ``low`` to ``high``, both among them."""
        count = high - low + 1
        return low + tf.minimum(tf.cast(self.uniform(number) * count, tf.int32), count - 1)


def _mixed(bits: tf.Tensor) -> tf.Tensor:
    bits = bits + _constant(_GOLDEN)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(30))) * _constant(_FIRST)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(27))) * _constant(_SECOND)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(31)))


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
