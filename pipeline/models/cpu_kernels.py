"""Faster CPU kernels for Keras layers in training: GELU, convolution, batch normalization, 2×2 max pooling.

The layers keep their class and configuration, so saved and cloned models contain nothing of this. Evaluation and the
count of operations use Keras's own operations (``as_keras``). docs/LOG.md has the timings.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

# Global for all threads: TensorFlow traces a step on several replicas in threads of its own.
_is_as_keras = False

# Products of matrices are faster from this many channels per pixel of a side.
_CHANNELS_PER_PIXEL = 32
_LARGEST_KERNEL = 3
_DTYPES = ("float32", "bfloat16")
# Number of each pixel of a 2×2 block, in the layout (batch, height // 2, 2, width // 2, 2, channels).
_PLACES = np.array([[0, 1], [2, 3]])[None, None, :, None, :, None]


def quicken(model: keras.Model) -> None:
    """Replace the computation of the model's layers, or their gradients, by faster CPU kernels where one fits."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            quicken(layer)
        method, kernel = _KERNELS.get(type(layer), ("", None))
        if kernel and (quick := kernel(layer)):
            setattr(layer, method, _unless_as_keras(getattr(layer, method), quick))


@contextlib.contextmanager
def as_keras() -> Iterator[None]:
    """Use Keras's own operations for everything that is traced inside."""
    global _is_as_keras
    before, _is_as_keras = _is_as_keras, True
    try:
        yield
    finally:
        _is_as_keras = before


def _unless_as_keras(plain: Callable, quick: Callable) -> Callable:
    return lambda *args, **kwargs: (plain if _is_as_keras else quick)(*args, **kwargs)


def _gelu_call(layer: keras.layers.Activation) -> Callable | None:
    """One XLA loop in float32, rounded once. TensorFlow passes over the images a dozen times, rounding each time."""
    return _gelu if layer.activation is keras.activations.gelu and layer.compute_dtype in _DTYPES else None


@tf.custom_gradient
def _gelu(inputs: tf.Tensor) -> tuple[tf.Tensor, object]:
    return _gelu_value(inputs), lambda gradient: _gelu_gradient(inputs, gradient)


@tf.function(jit_compile=True, autograph=False)
def _gelu_value(inputs: tf.Tensor) -> tf.Tensor:
    exact = tf.cast(inputs, tf.float32)
    return tf.cast(exact * _normal_cdf(exact), inputs.dtype)


@tf.function(jit_compile=True, autograph=False)
def _gelu_gradient(inputs: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Φ(x) + x φ(x), times the gradient of the outputs."""
    exact = tf.cast(inputs, tf.float32)
    density = tf.exp(exact * exact / -2) / math.sqrt(2 * math.pi)
    slope = _normal_cdf(exact) + exact * density
    return tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype)


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    # erfc, because 1 + erf loses all digits far below zero.
    return tf.math.erfc(x / -math.sqrt(2)) / 2


def _convolution_op(layer: keras.layers.Conv2D) -> Callable | None:
    """Other gradients for odd kernel sides and stride 1, padded to the same size."""
    is_plain = {*layer.strides, *layer.dilation_rate, layer.groups} == {1}
    is_same = (layer.padding, layer.data_format) == ("same", "channels_last")
    if not (is_plain and is_same and all(side % 2 for side in layer.kernel_size) and layer.compute_dtype in _DTYPES):
        return None
    plain = layer.convolution_op

    @tf.custom_gradient
    def convolved(images: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradients(of_outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return _of_images(images, kernel, of_outputs), _of_kernel(images, kernel, of_outputs)

        return plain(images, kernel), gradients

    # With a variable, TensorFlow would require a separate gradient for it.
    return lambda images, kernel: convolved(images, tf.convert_to_tensor(kernel))


def _of_images(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    """Gradient of the images (batch, height, width, inputs), for a kernel (height, width, inputs, filters)."""
    if images.dtype != tf.float32:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(images), filter=kernel, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    # A convolution with the turned kernel. Without oneDNN, TensorFlow's kernel takes up to seven times as long.
    turned = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
    return tf.nn.conv2d(of_outputs, turned, 1, "SAME")


def _of_kernel(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    if images.dtype == tf.float32 or not _goes_by_products(images.shape[1:3], kernel.shape):
        return tf.raw_ops.Conv2DBackpropFilter(
            input=images, filter_sizes=kernel.shape, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    # Products of the images with the shifted gradient, one for each place of the kernel. With few pixels and many
    # channels, TensorFlow's kernel takes up to three times as long. Without this dependency, TensorFlow would copy
    # the images early and hold the copies in memory.
    with tf.control_dependencies([of_outputs]):
        # Rows first, because a slice of the first axis needs no copy.
        images, of_outputs = (tf.transpose(each, [1, 0, 2, 3]) for each in (images, of_outputs))
    products = {}
    for column in range(kernel.shape[1]):
        of_image, of_output = _overlap(images.shape[2], column - kernel.shape[1] // 2)
        shifted = images[:, :, of_image], of_outputs[:, :, of_output]
        for row in range(kernel.shape[0]):
            parts = zip(shifted, _overlap(images.shape[0], row - kernel.shape[0] // 2), strict=True)
            left, right = (tf.reshape(each[kept], [-1, each.shape[-1]]) for each, kept in parts)
            products[row, column] = tf.matmul(left, right, transpose_a=True)
    return tf.reshape(tf.stack([products[place] for place in sorted(products)]), kernel.shape)


def _goes_by_products(sides: tf.TensorShape, kernel: tf.TensorShape) -> bool:
    if None in sides:
        return False
    # Up to 3×3 kernels, which need few products; measured (docs/LOG.md).
    is_quicker = max(kernel[:2]) <= _LARGEST_KERNEL and min(kernel[2:]) >= _CHANNELS_PER_PIXEL * max(sides)
    # Where some kernel places lie on no pixel, oneDNN in TensorFlow 2.21 returns uninitialized memory.
    return is_quicker or any(length // 2 >= side for length, side in zip(kernel[:2], sides, strict=True))


def _overlap(side: int, offset: int) -> tuple[slice, slice]:
    """Slices of images and outputs, where the output at i uses the pixel at i + offset."""
    left_out = min(abs(offset), side)
    first, last = slice(0, side - left_out), slice(left_out, side)
    return (last, first) if offset >= 0 else (first, last)


def _normalization_call(layer: keras.layers.BatchNormalization) -> Callable | None:
    """TensorFlow's fused kernel, which passes over the images once. Results differ by rounding."""
    if layer.renorm or layer.synchronized or layer.variable_dtype != "float32" or layer.compute_dtype not in _DTYPES:
        return None
    plain = layer.call

    def call(inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        # Integers are left to Keras.
        is_of_images = inputs.shape.rank == 4 and layer.axis in (-1, 3) and inputs.dtype == layer.compute_dtype
        if training is True and layer.trainable and mask is None and is_of_images:
            return _normalized(layer, inputs)
        return plain(inputs, training=training, mask=mask)

    return call


def _normalized(layer: keras.layers.BatchNormalization, images: tf.Tensor) -> tf.Tensor:
    """Images (batch, height, width, channels), normalized. Updates the layer's running statistics."""
    channels = layer.moving_mean.shape[0]
    factor = tf.cast(layer.gamma, tf.float32) if layer.scale else tf.ones(channels)
    shift = tf.cast(layer.beta, tf.float32) if layer.center else tf.zeros(channels)
    images, mean, variance = tf.compat.v1.nn.fused_batch_norm(images, factor, shift, epsilon=layer.epsilon)
    # The kernel divides by n - 1, Keras by n.
    places = tf.cast(tf.size(images) // channels, tf.float32)
    variance *= (places - 1) / places
    for running, found in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        running.assign(running * layer.momentum + found * (1 - layer.momentum))
    return images


def _pooling_call(layer: keras.layers.MaxPooling2D) -> Callable | None:
    """One XLA loop of comparisons. Without oneDNN, TensorFlow's kernel takes six times as long."""
    is_of_fours = (2, 2) == tuple(layer.pool_size) == tuple(layer.strides) and layer.data_format == "channels_last"
    if _has_one_dnn() or not is_of_fours:
        return None
    plain, padding = layer.call, layer.padding

    def call(inputs: tf.Tensor) -> tf.Tensor:
        # With an odd side, the last pixels are dropped or pooled alone.
        if None in inputs.shape[1:] or (padding == "same" and any(side % 2 for side in inputs.shape[1:3])):
            return plain(inputs)
        return _pooled(inputs)

    return call


def _has_one_dnn() -> bool:
    """Whether TensorFlow uses oneDNN. It does by default on processors with AVX512_VNNI or newer."""
    # TensorFlow has no public function for this.
    from tensorflow.python.util import _pywrap_util_port

    return _pywrap_util_port.IsMklEnabled()


@tf.custom_gradient
def _pooled(images: tf.Tensor) -> tuple[tf.Tensor, object]:
    largest = tf.nn.max_pool2d(images, 2, 2, "VALID")
    return largest, lambda gradient: _spread(images, largest, gradient)


@tf.function(jit_compile=True, autograph=False)
def _spread(images: tf.Tensor, largest: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient (batch, height // 2, width // 2, channels) goes to the first largest of each four pixels."""
    sides, channels = images.shape[1:3], images.shape[3]
    height, width = (side // 2 for side in sides)
    # Sliced and padded inside the compiled function: TensorFlow's gradient of a slice is slower than all of this.
    fours = tf.reshape(images[:, : 2 * height, : 2 * width], [-1, height, 2, width, 2, channels])
    largest, gradient = (each[:, :, None, :, None] for each in (largest, gradient))
    is_largest, first = fours == largest, tf.constant(_PLACES.size)
    for place in reversed(range(_PLACES.size)):
        row, column = divmod(place, 2)
        first = tf.where(is_largest[:, :, row : row + 1, :, column : column + 1], place, first)
    spread = tf.where(first == _PLACES, gradient, tf.zeros((), gradient.dtype))
    spread = tf.reshape(spread, [-1, 2 * height, 2 * width, channels])
    return tf.pad(spread, [[0, 0], [0, sides[0] % 2], [0, sides[1] % 2], [0, 0]])


# Class of a layer → the method that is replaced, and what makes its replacement for a layer that it fits.
_KERNELS: dict[type, tuple[str, Callable]] = {
    keras.layers.Activation: ("call", _gelu_call),
    keras.layers.Conv2D: ("convolution_op", _convolution_op),
    keras.layers.BatchNormalization: ("call", _normalization_call),
    keras.layers.MaxPooling2D: ("call", _pooling_call),
}
