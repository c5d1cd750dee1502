"""Pooling: the gradient of 2×2 max pooling on a CPU, for training (the networks' aid).

TensorFlow's kernel for it takes a third of a step of the baseline CNN (docs/LOG.md). Comparisons and choices, which XLA
makes one loop of, take a sixth of its time and give the same to the last bit: where several pixels are equally large,
the first of them, row by row, has the gradient.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

# Of the four pixels, row by row, as they lie in (batch, height // 2, 2, width // 2, 2, channels).
_PLACES = np.array([[0, 1], [2, 3]])[None, None, :, None, :, None]
_BITS = {2: tf.uint16, 4: tf.uint32, 8: tf.uint64}


def quicken(layer: keras.Layer) -> None:
    """Let a pooling of 2×2 pixels compute its gradient here; what it gives stays as it is."""
    if type(layer) is keras.layers.MaxPooling2D and _is_of_two(layer):
        layer.call = _quick_call(layer.call, layer.padding)


def _is_of_two(layer: keras.layers.MaxPooling2D) -> bool:
    return (2, 2) == tuple(layer.pool_size) == tuple(layer.strides) and layer.data_format == "channels_last"


def _quick_call(plain: Callable[[tf.Tensor], tf.Tensor], padding: str) -> Callable[[tf.Tensor], tf.Tensor]:
    def call(inputs: tf.Tensor) -> tf.Tensor:
        height, width = inputs.shape[1:3]
        if not (height and width):
            return plain(inputs)
        # Of an odd side the last pixels are left out, or have a pooling of their own.
        return _pooled(inputs) if padding == "valid" or height % 2 == width % 2 == 0 else plain(inputs)

    return call


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
    # In bfloat16 XLA rounds whatever it chooses: compared as float32, chosen as bits, it takes a twelfth of the time.
    is_largest = tf.cast(fours, tf.float32) == tf.cast(largest, tf.float32)
    first = tf.constant(_PLACES.size)
    for place in reversed(range(_PLACES.size)):
        row, column = divmod(place, 2)
        first = tf.where(is_largest[:, :, row : row + 1, :, column : column + 1], place, first)
    bits = tf.bitcast(gradient, _BITS[gradient.dtype.size])
    spread = tf.bitcast(tf.where(first == _PLACES, bits, tf.zeros((), bits.dtype)), gradient.dtype)
    spread = tf.reshape(spread, [-1, 2 * height, 2 * width, channels])
    return tf.pad(spread, [[0, 0], [0, sides[0] % 2], [0, sides[1] % 2], [0, 0]])
