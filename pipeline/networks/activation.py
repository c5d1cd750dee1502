"""Activation: GELU and its gradient on a CPU, for training (the networks' aid).

TensorFlow goes over the images a dozen times for it, in bfloat16 with a rounding each time. XLA makes one loop of it in
float32, which takes a sixth of the time in bfloat16 and a third in float32 (docs/LOG.md), and is rounded once.
"""

import math

import keras
import tensorflow as tf


def quicken(layer: keras.Layer) -> None:
    """Let a layer that is GELU alone compute it, and its gradient, here; it differs by rounding alone."""
    if type(layer) is keras.layers.Activation and layer.activation is keras.activations.gelu:
        layer.call = _gelu


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
