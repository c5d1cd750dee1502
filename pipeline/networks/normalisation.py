"""Normalisation: that of a batch and its gradient on a CPU, for training (the networks' aid).

Keras goes over the images once for each of mean, deviation, difference, factor and shift, and in bfloat16 over copies
in float32. TensorFlow has one kernel for all of them, which takes a fraction of the time (docs/LOG.md).
"""

import functools
from collections.abc import Callable

import keras
import tensorflow as tf

CALLED = "call"


def quick_call(layer: keras.Layer) -> Callable | None:
    """What normalises a batch of images by TensorFlow's fused kernel in training; else None.

    What it gives, its gradient and its running statistics differ by rounding alone.
    """
    if type(layer) is not keras.layers.BatchNormalization or layer.renorm or layer.synchronized:
        return None
    if layer.variable_dtype != "float32" or layer.compute_dtype not in ("float32", "bfloat16"):
        return None
    return functools.partial(_call, layer, layer.call)


def _call(
    layer: keras.layers.BatchNormalization,
    plain: Callable,
    inputs: tf.Tensor,
    training: bool | None = None,
    mask: tf.Tensor | None = None,
) -> tf.Tensor:
    # Whole numbers come as they are.
    is_of_images = inputs.shape.rank == 4 and layer.axis in (-1, 3) and inputs.dtype == layer.compute_dtype
    if training is True and layer.trainable and mask is None and is_of_images:
        return _normalised(layer, inputs)
    return plain(inputs, training=training, mask=mask)


def _normalised(layer: keras.layers.BatchNormalization, images: tf.Tensor) -> tf.Tensor:
    """The images (batch, height, width, channels), normalised; the layer's running statistics follow."""
    channels = layer.moving_mean.shape[0]
    factor = tf.cast(layer.gamma, tf.float32) if layer.scale else tf.ones(channels)
    shift = tf.cast(layer.beta, tf.float32) if layer.center else tf.zeros(channels)
    images, mean, variance = tf.compat.v1.nn.fused_batch_norm(images, factor, shift, epsilon=layer.epsilon)
    # The kernel divides by one fewer, as of a sample; Keras by all.
    places = tf.cast(tf.size(images) // channels, tf.float32)
    variance *= (places - 1) / places
    for running, found in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        running.assign(running * layer.momentum + found * (1 - layer.momentum))
    return images
