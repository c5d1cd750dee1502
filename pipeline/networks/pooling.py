"""Pooling: the gradient of 2×2 max pooling on a CPU, for training (the networks' aid).

TensorFlow's kernel for it takes a third of a step of the baseline CNN (docs/LOG.md). Comparisons and choices, which XLA
makes one loop of, take a sixth of its time and give the same to the last bit: where several pixels are equally large,
the first of them, row by row, has the gradient.
"""

from collections.abc import Callable

import keras
import tensorflow as tf


def quicken(model: keras.Model) -> None:
    """Let the network's poolings of 2×2 pixels compute their gradient here; what they give stays as it is.

    The layers remain Keras's own, of the same class and configuration: whatever is saved of the network, or cloned
    from it, knows nothing of this.
    """
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            quicken(layer)
        elif type(layer) is keras.layers.MaxPooling2D and _is_of_two(layer):
            layer.call = _quick_call(layer.call, layer.padding)


def _is_of_two(layer: keras.layers.MaxPooling2D) -> bool:
    return (2, 2) == tuple(layer.pool_size) == tuple(layer.strides) and layer.data_format == "channels_last"


def _quick_call(plain: Callable[[tf.Tensor], tf.Tensor], padding: str) -> Callable[[tf.Tensor], tf.Tensor]:
    def call(inputs: tf.Tensor) -> tf.Tensor:
        height, width = inputs.shape[1:3]
        if not (height and width):
            return plain(inputs)
        if height % 2 == width % 2 == 0:
            return _pooled(inputs)
        # Of an odd side the last pixels have a pooling of their own, or none: then they have no gradient.
        return _pooled(inputs[:, : height // 2 * 2, : width // 2 * 2]) if padding == "valid" else plain(inputs)

    return call


@tf.custom_gradient
def _pooled(images: tf.Tensor) -> tuple[tf.Tensor, object]:
    largest = tf.nn.max_pool2d(images, 2, 2, "VALID")
    return largest, lambda gradient: _spread(images, largest, gradient)


@tf.function(jit_compile=True, autograph=False)
def _spread(images: tf.Tensor, largest: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient (batch, height / 2, width / 2, channels) at the first largest of each four pixels, else zero."""
    height, width, channels = images.shape[1:]
    fours = tf.reshape(images, [-1, height // 2, 2, width // 2, 2, channels])
    zero, left, parts = tf.zeros((), images.dtype), gradient, []
    for row in (0, 1):
        for column in (0, 1):
            is_largest = fours[:, :, row, :, column] == largest
            parts.append(tf.where(is_largest, left, zero))
            left = tf.where(is_largest, zero, left)
    rows = [tf.stack(parts[:2], axis=3), tf.stack(parts[2:], axis=3)]
    return tf.reshape(tf.stack(rows, axis=2), tf.shape(images))
