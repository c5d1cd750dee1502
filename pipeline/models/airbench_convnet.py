"""The convnet of airbench94, for small photographs such as those of CIFAR-10.

Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", after Page 2019. It learns in few epochs by a first
layer that whitens patches and is not trained (Coates, Ng and Lee 2011), convolutions that begin as the identity, and a
normalization without scale.
"""

import math

import keras
import numpy as np

from pipeline.models.model import adapted_by, gives_logits

# As in the baseline CNN; bfloat16 holds every pixel exactly.
_SCALE, _OFFSET = 1 / 64, -2
_PATCH_SIDE = 2
# Running statistics of the last few steps. A training of a few hundred steps makes early ones soon out of date.
_MOMENTUM = 0.6
# Added to each variance, so that noise is not amplified in a direction in which patches hardly differ.
_EPSILON = 5e-4
# Pixels of the images whose patches are counted at a time: 80 MB of float64 of 2×2 patches of three channels.
_PIXELS_AT_A_TIME = 800 * 32 * 32


def _whiten(model: keras.Model, images: np.ndarray) -> None:
    kernel, bias = whitening_filters(images, _PATCH_SIDE, scale=_SCALE, offset=_OFFSET)
    layer = model.get_layer("whiten")
    layer.kernel.assign(kernel)
    layer.bias.assign(bias)


@gives_logits
@adapted_by(_whiten)
def airbench_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 64, 256 and 256 filters with GELU, as published: 1,973,944 weights of 32 × 32 colors and 10 labels.

    An image of 32 pixels a side takes 118 million multiplications, 0.682 GFLOP in training.
    """
    return _convnet("airbench_convnet", image_shape, num_labels, widths=(64, 256, 256), activation="gelu")


@gives_logits
@adapted_by(_whiten)
def airbench_convnet_small(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 32, 128 and 128 filters with ReLU, for a CPU: 33 million multiplications, 3.6 times fewer."""
    return _convnet("airbench_convnet_small", image_shape, num_labels, widths=(32, 128, 128), activation="relu")


@gives_logits
@adapted_by(_whiten)
def airbench_convnet_large(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 128, 384 and 512 filters, each with a third convolution; a residual goes past the last two.

    That of airbench96_faster: 9,921,848 weights, 452 million multiplications, 3.8 times as many.
    """
    widths = (128, 384, 512)
    return _convnet("airbench_convnet_large", image_shape, num_labels, widths=widths, activation="gelu", residual=True)


def _convnet(
    name: str,
    image_shape: tuple[int, int, int],
    num_labels: int,
    *,
    widths: tuple[int, ...],
    activation: str,
    residual: bool = False,
) -> keras.Model:
    layers = keras.layers
    inputs = keras.Input(image_shape, dtype="uint8")
    outputs = layers.Rescaling(_SCALE, offset=_OFFSET, name="rescale")(inputs)
    # Each direction and its negative, because the activation cuts off one of them.
    whiten = layers.Conv2D(2 * _PATCH_SIDE**2 * image_shape[2], _PATCH_SIDE, name="whiten")
    outputs = layers.Activation(activation, name=f"{activation}_whitened")(whiten(outputs))
    for block, filters in enumerate(widths, start=1):
        outputs = _block(outputs, str(block), filters, activation, residual=residual)
    # 3 of 32 pixels a side are left.
    outputs = layers.GlobalMaxPooling2D(name="largest")(outputs)
    # Weights and outputs share the factor that keeps logits small at the start: each is 1 / √width.
    factor = widths[-1] ** -0.5
    drawn = keras.initializers.RandomNormal(stddev=factor)
    # Logits in bfloat16 have three digits: too few for the loss.
    outputs = layers.Dense(num_labels, use_bias=False, kernel_initializer=drawn, dtype="float32", name="head")(outputs)
    outputs = layers.Rescaling(factor, dtype="float32", name="logits")(outputs)
    model = keras.Model(inputs, outputs, name=name)
    # The published one trains its bias for three epochs. Here it is frozen too: only this bias would need the gradient
    # of conv_1a's inputs, a tenth of a step on a CPU.
    whiten.trainable = False
    for layer in model.layers:
        if layer.name.startswith("conv_"):
            _begin_as_identity(layer)
    return model


def _block(
    inputs: keras.KerasTensor, block: str, filters: int, activation: str, *, residual: bool
) -> keras.KerasTensor:
    layers = keras.layers
    # One place is left of small images.
    padding = "valid" if min(inputs.shape[1:3]) > 1 else "same"
    outputs = _convolution(filters, f"{block}a")(inputs)
    outputs = layers.MaxPooling2D(2, padding=padding, name=f"pool_{block}")(outputs)
    first = layers.Activation(activation, name=f"{activation}_{block}a")(_normalization(f"{block}a")(outputs))
    outputs = _normalization(f"{block}b")(_convolution(filters, f"{block}b")(first))
    outputs = layers.Activation(activation, name=f"{activation}_{block}b")(outputs)
    if not residual:
        return outputs
    outputs = _normalization(f"{block}c")(_convolution(filters, f"{block}c")(outputs))
    outputs = layers.Add(name=f"add_{block}")([first, outputs])
    return layers.Activation(activation, name=f"{activation}_{block}c")(outputs)


def _convolution(filters: int, name: str) -> keras.Layer:
    # As PyTorch draws them for the published figures.
    drawn = keras.initializers.VarianceScaling(1 / 3, mode="fan_in", distribution="uniform")
    # The normalization has the bias.
    return keras.layers.Conv2D(
        filters, 3, padding="same", use_bias=False, kernel_initializer=drawn, name=f"conv_{name}"
    )


def _normalization(name: str) -> keras.Layer:
    return keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=1e-5, scale=False, name=f"norm_{name}")


def _begin_as_identity(convolution: keras.Layer) -> None:
    """Let the first filters each copy one of the inputs."""
    kernel = keras.ops.convert_to_numpy(convolution.kernel).copy()
    channels = np.arange(min(kernel.shape[2:]))
    kernel[..., channels] = 0
    kernel[1, 1, channels, channels] = 1
    convolution.kernel.assign(kernel)


def whitening_filters(images: np.ndarray, side: int, *, scale: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """A kernel and a bias that whiten patches of ``side`` × ``side`` pixels, and their negatives.

    The filters are the eigenvectors of the patches' covariance, each divided by the root of its eigenvalue. They get
    ``scale * pixel + offset`` of ``images``, uint8 (images, height, width, channels).

    Returns:
        float32 (side, side, channels, 2 * n) with n = side² · channels, the direction of the greatest variance first
        and all negatives last, and float32 (2 * n,), which gives filtered patches the mean 0.
    """
    size = side * side * images.shape[-1]
    # Sums of products of uint8 are integers that float64 represents exactly, so the order of adding does not matter.
    count, total, products = 0, np.zeros(size), np.zeros((size, size))
    at_a_time = max(_PIXELS_AT_A_TIME // math.prod(images.shape[1:3]), 1)
    for start in range(0, len(images), at_a_time):
        patches = _patches(images[start : start + at_a_time], side)
        count += len(patches)
        total += patches.sum(axis=0)
        products += patches.T @ patches
    mean = total / count
    covariance = (products / count - np.outer(mean, mean)) * scale**2
    variances, vectors = np.linalg.eigh(covariance)
    # Either sign is an eigenvector. The greatest component is positive on every machine.
    vectors = vectors[:, ::-1] * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(size)])[::-1]
    filters = vectors / np.sqrt(np.maximum(variances[::-1], 0) + _EPSILON)
    filters = np.concatenate([filters, -filters], axis=1)
    bias = -(mean * scale + offset) @ filters
    return filters.reshape(side, side, -1, 2 * size).astype(np.float32), bias.astype(np.float32)


def _patches(images: np.ndarray, side: int) -> np.ndarray:
    """All patches as rows, in the layout of a kernel: float64 (patches, size)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (side, side), axis=(1, 2))
    return np.moveaxis(windows, 3, -1).reshape(-1, side * side * images.shape[-1]).astype(np.float64)
