"""Activation: GELU and its gradient on a CPU, for training (the networks' aid).

TensorFlow goes over the images a dozen times for it, in bfloat16 with a rounding each time. XLA makes one loop of it in
float32, rounded once, which takes a fraction of the time (docs/LOG.md).
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

CALLED = "call"


def quick_call(layer: keras.Layer) -> Callable | None:
    """What gives GELU, and its gradient, of a layer that is GELU alone; it differs by rounding. Else None."""
    is_gelu = type(layer) is keras.layers.Activation and layer.activation is keras.activations.gelu
    return _gelu if is_gelu and layer.compute_dtype in ("float32", "bfloat16") else None


@tf.custom_gradient
def _gelu(inputs: tf.Tensor) -> tuple[tf.Tensor, object]:
    return _value(inputs), lambda gradient: _of_inputs(inputs, gradient)


@tf.function(jit_compile=True, autograph=False)
def _value(inputs: tf.Tensor) -> tf.Tensor:
    exact = tf.cast(inputs, tf.float32)
    return tf.cast(exact * _normal_cdf(exact), inputs.dtype)


@tf.function(jit_compile=True, autograph=False)
def _of_inputs(inputs: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient of the inputs: Φ(x) + x φ(x) times that of the outputs."""
    exact = tf.cast(inputs, tf.float32)
    density = tf.exp(exact * exact / -2) / math.sqrt(2 * math.pi)
    slope = _normal_cdf(exact) + exact * density
    return tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype)


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    # As erfc: 1 + erf loses all digits of what is far below zero.
    return tf.math.erfc(x / -math.sqrt(2)) / 2
