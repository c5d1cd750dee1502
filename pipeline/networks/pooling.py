"""Pooling: the gradient of 2×2 max pooling on a CPU, for training (the networks' aid).

Without oneDNN TensorFlow's kernel for it takes a third of a step of the baseline CNN (docs/LOG.md). Comparisons and
choices, which XLA makes one loop of, take a sixth of its time and give the same to the last bit: where several pixels
are equally large, the first of them, row by row, has the gradient. With oneDNN TensorFlow's own is the quicker.
"""

import functools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

# Of the four pixels, row by row, as they lie in (batch, height // 2, 2, width // 2, 2, channels).
_PLACES = np.array([[0, 1], [2, 3]])[None, None, :, None, :, None]


CALLED = "call"


def quick_call(layer: keras.Layer) -> Callable | None:
    """What pools 2×2 pixels with the quick gradient; else None. What it gives stays as it is."""
    if type(layer) is not keras.layers.MaxPooling2D or layer.data_format != "channels_last":
        return None
    if not (2, 2) == tuple(layer.pool_size) == tuple(layer.strides):
        return None
    return functools.partial(_call, layer.call, layer.padding)


def _call(plain: Callable[[tf.Tensor], tf.Tensor], padding: str, inputs: tf.Tensor) -> tf.Tensor:
    # Of an odd side the last pixels are left out, or have a pooling of their own.
    if None in inputs.shape[1:] or (padding == "same" and any(side % 2 for side in inputs.shape[1:3])):
        return plain(inputs)
    return _pooled(inputs)


@tf.custom_gradient
def _pooled(images: tf.Tensor) -> tuple[tf.Tensor, object]:
    largest = tf.nn.max_pool2d(images, 2, 2, "VALID")
    return largest, lambda gradient: _spread(images, largest, gradient)


@tf.function(jit_compile=True, autograph=False)
def _spread(images: tf.Tensor, largest: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient (batch, height // 2, width // 2, channels) at the first largest of each four pixels, else zero."""
    sides, channels = images.shape[1:3], images.shape[3]
    height, width = (side // 2 for side in sides)
    # Cut and filled up inside of what is compiled: TensorFlow's gradient of a slice takes longer than all of this.
    fours = tf.reshape(images[:, : 2 * height, : 2 * width], [-1, height, 2, width, 2, channels])
    largest, gradient = (each[:, :, None, :, None] for each in (largest, gradient))
    is_largest, first = fours == largest, tf.constant(_PLACES.size)
    for place in reversed(range(_PLACES.size)):
        row, column = divmod(place, 2)
        first = tf.where(is_largest[:, :, row : row + 1, :, column : column + 1], place, first)
    spread = tf.where(first == _PLACES, gradient, tf.zeros((), gradient.dtype))
    spread = tf.reshape(spread, [-1, 2 * height, 2 * width, channels])
    return tf.pad(spread, [[0, 0], [0, sides[0] % 2], [0, sides[1] % 2], [0, 0]])
