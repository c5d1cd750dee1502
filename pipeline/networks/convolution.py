"""Convolution: the gradient of its inputs on a CPU, for training (the networks' aid).

The gradient of a convolution of stride 1 is itself one: of the gradient of its outputs, by the kernel turned round with
inputs and filters exchanged. TensorFlow's kernel for it takes up to seven times as long as that (docs/LOG.md).
"""

from collections.abc import Callable

import keras
import tensorflow as tf


def quicken(layer: keras.Layer) -> None:
    """Let a convolution of odd sides and stride 1, padded to the same size, compute its inputs' gradient here.

    What it gives stays as it is, and the gradient too, but for the rounding of sums in another order. In bfloat16
    TensorFlow's own is left: there both take the same time (docs/LOG.md).
    """
    if type(layer) is keras.layers.Conv2D and _fits(layer):
        layer.convolution_op = _quick_operation(layer.convolution_op)


def _fits(layer: keras.layers.Conv2D) -> bool:
    return (
        {*layer.strides, *layer.dilation_rate, layer.groups} == {1}
        and all(side % 2 for side in layer.kernel_size)
        and (layer.padding, layer.data_format) == ("same", "channels_last")
        and layer.compute_dtype == "float32"
    )


def _quick_operation(plain: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def convolved(images: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, object]:
        return plain(images, kernel), lambda gradient: _gradients(images, kernel, gradient)

    # Of a variable TensorFlow would want its gradient apart.
    return lambda images, kernel: convolved(images, tf.convert_to_tensor(kernel))


def _gradients(images: tf.Tensor, kernel: tf.Tensor, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of the images (batch, height, width, inputs) and of the kernel (height, width, inputs, filters)."""
    turned = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
    of_kernel = tf.raw_ops.Conv2DBackpropFilter(
        input=images, filter_sizes=kernel.shape, out_backprop=gradient, strides=[1, 1, 1, 1], padding="SAME"
    )
    return tf.nn.conv2d(gradient, turned, 1, "SAME"), of_kernel
