"""Convolution: its gradients on a CPU, for training (the networks' aid).

In float32: the gradient of the inputs of a convolution of stride 1 is itself one, of the gradient of its outputs, by
the kernel turned round with inputs and filters exchanged. Without oneDNN TensorFlow's kernel for it takes up to seven
times as long as that (docs/LOG.md), with it as long.

In bfloat16: the gradient of the kernel is, for each of its places, a product of the images with the gradient of the
outputs, moved by that place. Of few pixels and many channels TensorFlow's kernel takes up to three times as long as
those products.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

# Channels for each pixel of a side from which products are quicker.
_CHANNELS_A_PIXEL = 32
_LARGEST_KERNEL = 3


CALLED = "convolution_op"


def quick_call(layer: keras.Layer) -> Callable | None:
    """What convolves for a layer of odd sides and stride 1, padded to the same size, with quick gradients; else None.

    What it gives stays as it is, and the gradients too, but for the rounding of sums in another order.
    """
    if type(layer) is not keras.layers.Conv2D or not _fits(layer):
        return None
    plain = layer.convolution_op

    @tf.custom_gradient
    def convolved(images: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradients(of_outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return _of_images(images, kernel, of_outputs), _of_kernel(images, kernel, of_outputs)

        return plain(images, kernel), gradients

    # Of a variable TensorFlow would want its gradient apart.
    return lambda images, kernel: convolved(images, tf.convert_to_tensor(kernel))


def _fits(layer: keras.layers.Conv2D) -> bool:
    return (
        {*layer.strides, *layer.dilation_rate, layer.groups} == {1}
        and all(side % 2 for side in layer.kernel_size)
        and (layer.padding, layer.data_format) == ("same", "channels_last")
        and layer.compute_dtype in ("float32", "bfloat16")
    )


def _of_images(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    """The gradient of the images (batch, height, width, inputs), of a kernel (height, width, inputs, filters)."""
    if images.dtype != tf.float32:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(images), filter=kernel, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    turned = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
    return tf.nn.conv2d(of_outputs, turned, 1, "SAME")


def _of_kernel(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    sides = images.shape[1:3]
    by_products = _is_quicker_by_products(sides, kernel.shape) or _reaches_beyond(sides, kernel.shape)
    if images.dtype == tf.float32 or not by_products:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=images, filter_sizes=kernel.shape, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    # Or what is copied of the images would be made as soon as they are there, and held until it is wanted.
    with tf.control_dependencies([of_outputs]):
        # Rows first: of those nothing is copied, whichever are left out.
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


def _is_quicker_by_products(sides: tf.TensorShape, kernel: tf.TensorShape) -> bool:
    """Of 3×3 kernels at most, whose products are few; measured (docs/LOG.md)."""
    return (
        None not in sides and max(kernel[:2]) <= _LARGEST_KERNEL and min(kernel[2:]) >= _CHANNELS_A_PIXEL * max(sides)
    )


def _reaches_beyond(sides: tf.TensorShape, kernel: tf.TensorShape) -> bool:
    """Whether some of a kernel's places lie on no pixel; there oneDNN in TensorFlow 2.21 leaves what memory held."""
    return None not in sides and any(length // 2 >= side for length, side in zip(kernel[:2], sides, strict=True))


def _overlap(side: int, offset: int) -> tuple[slice, slice]:
    """Of the images and of the outputs, where the output at i takes the image's pixel at i + offset."""
    left_out = min(abs(offset), side)
    first, last = slice(0, side - left_out), slice(left_out, side)
    return (last, first) if offset >= 0 else (first, last)
