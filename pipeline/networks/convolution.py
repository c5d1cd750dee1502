"""Convolution: its gradients on a CPU, for training (the networks' aid).

In float32: the gradient of the inputs of a convolution of stride 1 is itself one, of the gradient of its outputs, by
the kernel turned round with inputs and filters exchanged. TensorFlow's kernel for it takes up to seven times as long
as that (docs/LOG.md).

In bfloat16: the gradient of the kernel is, for each of its places, a product of the images with the gradient of the
outputs, moved by that place. Of few pixels and many channels TensorFlow's kernel takes up to three times as long as
those products.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

#: Channels for each pixel of a side from which products are quicker; measured with 3×3 kernels (docs/LOG.md).
_CHANNELS_A_PIXEL = 32


def quicken(layer: keras.Layer) -> None:
    """Let a convolution of odd sides and stride 1, padded to the same size, compute its gradients here.

    What it gives stays as it is, and the gradients too, but for the rounding of sums in another order.
    """
    if type(layer) is keras.layers.Conv2D and _fits(layer):
        layer.convolution_op = _quick_operation(layer.convolution_op)


def _fits(layer: keras.layers.Conv2D) -> bool:
    return (
        {*layer.strides, *layer.dilation_rate, layer.groups} == {1}
        and all(side % 2 for side in layer.kernel_size)
        and (layer.padding, layer.data_format) == ("same", "channels_last")
        and layer.compute_dtype in ("float32", "bfloat16")
    )


def _quick_operation(plain: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    @tf.custom_gradient
    def convolved(images: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradients(of_outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return _of_images(images, kernel, of_outputs), _of_kernel(images, kernel, of_outputs)

        return plain(images, kernel), gradients

    # Of a variable TensorFlow would want its gradient apart.
    return lambda images, kernel: convolved(images, tf.convert_to_tensor(kernel))


def _of_images(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    """The gradient of the images (batch, height, width, inputs), of a kernel (height, width, inputs, filters)."""
    if images.dtype != tf.float32:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(images), filter=kernel, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    turned = tf.transpose(tf.reverse(kernel, [0, 1]), [0, 1, 3, 2])
    return tf.nn.conv2d(of_outputs, turned, 1, "SAME")


def _of_kernel(images: tf.Tensor, kernel: tf.Tensor, of_outputs: tf.Tensor) -> tf.Tensor:
    sides, channels = images.shape[1:3], kernel.shape[2:]
    is_small = None not in sides and min(channels) >= _CHANNELS_A_PIXEL * max(sides)
    if images.dtype == tf.float32 or not is_small:
        return tf.raw_ops.Conv2DBackpropFilter(
            input=images, filter_sizes=kernel.shape, out_backprop=of_outputs, strides=[1, 1, 1, 1], padding="SAME"
        )
    rows, columns = (
        [_overlap(side, offset) for offset in range(-(size // 2), size // 2 + 1)]
        for side, size in zip(sides, kernel.shape, strict=False)
    )
    products = [
        tf.matmul(
            tf.reshape(images[:, row[0], column[0]], [-1, channels[0]]),
            tf.reshape(of_outputs[:, row[1], column[1]], [-1, channels[1]]),
            transpose_a=True,
        )
        for row in rows
        for column in columns
    ]
    return tf.reshape(tf.stack(products), kernel.shape)


def _overlap(side: int, offset: int) -> tuple[slice, slice]:
    """Of the images and of the outputs, where the output at i takes the image's pixel at i + offset."""
    return slice(max(offset, 0), max(0, side + min(offset, 0))), slice(max(-offset, 0), max(0, side - max(offset, 0)))
