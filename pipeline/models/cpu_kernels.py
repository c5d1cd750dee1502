"""Faster CPU kernels for Keras layers in training: GELU, convolution, batch normalization, 2×2 max pooling.

Layers keep their class and configuration, so saved and cloned models are unaffected. Evaluation and the count of
operations use Keras's operations (``without_fast_kernels``). docs/LOG.md has the timings.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

# Global for all threads, because TensorFlow traces the replicas of a step in separate threads.
_is_disabled = False

# Matrix products are faster if a layer has at least this number of channels per pixel of a side.
_CHANNELS_PER_PIXEL = 32
_LARGEST_KERNEL = 3
_DTYPES = ("float32", "bfloat16")
_SAME = {"strides": [1, 1, 1, 1], "padding": "SAME"}
# Numbers of the pixels in a 2×2 block, in the layout (batch, height // 2, 2, width // 2, 2, channels).
_PIXEL_NUMBERS = np.array([[0, 1], [2, 3]])[None, None, :, None, :, None]


def use_fast_kernels(model: keras.Model) -> None:
    """Replace computations and gradients of the model's layers by faster CPU kernels if they fit."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            use_fast_kernels(layer)
        method, kernel = _KERNELS.get(type(layer), ("", None))
        if kernel and (fast := kernel(layer)):
            setattr(layer, method, _unless_disabled(getattr(layer, method), fast))


@contextlib.contextmanager
def without_fast_kernels() -> Iterator[None]:
    """Context in which traced functions use Keras's operations."""
    global _is_disabled
    was_disabled, _is_disabled = _is_disabled, True
    try:
        yield
    finally:
        _is_disabled = was_disabled


def _unless_disabled(plain: Callable, fast: Callable) -> Callable:
    return lambda *args, **kwargs: (plain if _is_disabled else fast)(*args, **kwargs)


def _gelu_call(layer: keras.layers.Activation) -> Callable | None:
    """GELU in one XLA loop in float32, rounded once. TensorFlow makes a dozen passes and rounds each time."""
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
    """Gradient of the inputs, (Φ(x) + x φ(x)) times the gradient of the outputs."""
    exact = tf.cast(inputs, tf.float32)
    density = tf.exp(exact * exact / -2) / math.sqrt(2 * math.pi)
    slope = _normal_cdf(exact) + exact * density
    return tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype)


def _normal_cdf(x: tf.Tensor) -> tf.Tensor:
    # Far below zero, 1 + erf would lose all digits.
    return tf.math.erfc(x / -math.sqrt(2)) / 2


def _convolution_op(layer: keras.layers.Conv2D) -> Callable | None:
    """Convolution with faster gradients, for odd kernel sides, stride 1 and padding "same"."""
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

    # TensorFlow would require a separate gradient for a variable.
    return lambda images, kernel: convolved(images, tf.convert_to_tensor(kernel))


def _of_images(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    """Gradient of the images (batch, height, width, inputs), for a kernel (height, width, inputs, filters)."""
    if images.dtype != tf.float32:
        sizes = tf.shape(images)
        return tf.raw_ops.Conv2DBackpropInput(input_sizes=sizes, filter=kernel, out_backprop=of_outputs, **_SAME)
    # A convolution with the flipped kernel. Without oneDNN, TensorFlow's kernel takes up to seven times as long.
    flipped = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
    return tf.nn.conv2d(of_outputs, flipped, 1, "SAME")


def _of_kernel(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    if images.dtype == tf.float32 or not _uses_products(images.shape[1:3], kernel.shape):
        sizes = kernel.shape
        return tf.raw_ops.Conv2DBackpropFilter(input=images, filter_sizes=sizes, out_backprop=of_outputs, **_SAME)
    # A matrix product per kernel position. With few pixels and many channels, TensorFlow's kernel takes up to three
    # times as long. Without this dependency, TensorFlow would copy the images early and use more memory.
    with tf.control_dependencies([of_outputs]):
        # A slice of the leading axis needs no copy.
        images, of_outputs = (tf.transpose(each, [1, 0, 2, 3]) for each in (images, of_outputs))
    products = {}
    for column in range(kernel.shape[1]):
        of_image, of_output = _overlap(images.shape[2], column - kernel.shape[1] // 2)
        shifted = images[:, :, of_image], of_outputs[:, :, of_output]
        for row in range(kernel.shape[0]):
            pairs = zip(shifted, _overlap(images.shape[0], row - kernel.shape[0] // 2), strict=True)
            lhs, rhs = (tf.reshape(each[rows], [-1, each.shape[-1]]) for each, rows in pairs)
            products[row, column] = tf.matmul(lhs, rhs, transpose_a=True)
    return tf.reshape(tf.stack([products[position] for position in sorted(products)]), kernel.shape)


def _uses_products(sides: tf.TensorShape, kernel: tf.TensorShape) -> bool:
    if None in sides:
        return False
    # Larger kernels need more products, and benchmarks found them slower (docs/LOG.md).
    is_faster = max(kernel[:2]) <= _LARGEST_KERNEL and min(kernel[2:]) >= _CHANNELS_PER_PIXEL * max(sides)
    # If a kernel position covers no pixel, oneDNN in TensorFlow 2.21 returns uninitialized memory.
    return is_faster or any(length // 2 >= side for length, side in zip(kernel[:2], sides, strict=True))


def _overlap(side: int, offset: int) -> tuple[slice, slice]:
    """Slices of images and outputs, such that the output at i uses the pixel at i + offset."""
    num_omitted = min(abs(offset), side)
    start, end = slice(0, side - num_omitted), slice(num_omitted, side)
    return (end, start) if offset >= 0 else (start, end)


def _normalization_call(layer: keras.layers.BatchNormalization) -> Callable | None:
    """TensorFlow's fused kernel, which reads the images once. Results differ by rounding."""
    if layer.renorm or layer.synchronized or layer.variable_dtype != "float32" or layer.compute_dtype not in _DTYPES:
        return None
    plain = layer.call

    def call(inputs: tf.Tensor, training: bool | None = None, mask: tf.Tensor | None = None) -> tf.Tensor:
        # The kernel does not support integers.
        is_of_images = inputs.shape.rank == 4 and layer.axis in (-1, 3) and inputs.dtype == layer.compute_dtype
        if training is True and layer.trainable and mask is None and is_of_images:
            return _normalized(layer, inputs)
        return plain(inputs, training=training, mask=mask)

    return call


def _normalized(layer: keras.layers.BatchNormalization, images: tf.Tensor) -> tf.Tensor:
    """Normalize images (batch, height, width, channels) and update the layer's running statistics."""
    channels = layer.moving_mean.shape[0]
    factor = tf.cast(layer.gamma, tf.float32) if layer.scale else tf.ones(channels)
    shift = tf.cast(layer.beta, tf.float32) if layer.center else tf.zeros(channels)
    images, mean, variance = tf.compat.v1.nn.fused_batch_norm(images, factor, shift, epsilon=layer.epsilon)
    # The kernel's variance divides by n - 1, and Keras's by n.
    count = tf.cast(tf.size(images) // channels, tf.float32)
    variance *= (count - 1) / count
    for running, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        running.assign(running * layer.momentum + value * (1 - layer.momentum))
    return images


def _pooling_call(layer: keras.layers.MaxPooling2D) -> Callable | None:
    """2×2 pooling with a gradient in one XLA loop. Without oneDNN, TensorFlow's kernel takes six times as long."""
    is_of_fours = (2, 2) == tuple(layer.pool_size) == tuple(layer.strides) and layer.data_format == "channels_last"
    if _has_onednn() or not is_of_fours:
        return None
    plain, padding = layer.call, layer.padding

    def call(inputs: tf.Tensor) -> tf.Tensor:
        # With an odd side and padding "same", the last pixels are pooled alone.
        if None in inputs.shape[1:] or (padding == "same" and any(side % 2 for side in inputs.shape[1:3])):
            return plain(inputs)
        return _pooled(inputs)

    return call


def _has_onednn() -> bool:
    """Whether TensorFlow uses oneDNN, by default on processors with AVX512_VNNI or newer."""
    # TensorFlow has no public function for this.
    from tensorflow.python.util import _pywrap_util_port

    return _pywrap_util_port.IsMklEnabled()


@tf.custom_gradient
def _pooled(images: tf.Tensor) -> tuple[tf.Tensor, object]:
    largest = tf.nn.max_pool2d(images, 2, 2, "VALID")
    return largest, lambda gradient: _spread(images, largest, gradient)


@tf.function(jit_compile=True, autograph=False)
def _spread(images: tf.Tensor, largest: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """Assign each gradient (batch, height // 2, width // 2, channels) to the first largest of four pixels."""
    sides, channels = images.shape[1:3], images.shape[3]
    height, width = (side // 2 for side in sides)
    # Slicing outside this compiled function would be slower than all of it.
    fours = tf.reshape(images[:, : 2 * height, : 2 * width], [-1, height, 2, width, 2, channels])
    largest, gradient = (each[:, :, None, :, None] for each in (largest, gradient))
    is_largest, first = fours == largest, tf.constant(_PIXEL_NUMBERS.size)
    for number in reversed(range(_PIXEL_NUMBERS.size)):
        row, column = divmod(number, 2)
        first = tf.where(is_largest[:, :, row : row + 1, :, column : column + 1], number, first)
    spread = tf.where(first == _PIXEL_NUMBERS, gradient, tf.zeros((), gradient.dtype))
    spread = tf.reshape(spread, [-1, 2 * height, 2 * width, channels])
    return tf.pad(spread, [[0, 0], [0, sides[0] % 2], [0, sides[1] % 2], [0, 0]])


# Class of a layer → method to replace, and function that returns the replacement, or None if it does not fit.
_KERNELS: dict[type, tuple[str, Callable]] = {
    keras.layers.Activation: ("call", _gelu_call),
    keras.layers.Conv2D: ("convolution_op", _convolution_op),
    keras.layers.BatchNormalization: ("call", _normalization_call),
    keras.layers.MaxPooling2D: ("call", _pooling_call),
}
