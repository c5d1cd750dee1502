"""Convnet of airbench94, for small photographs such as those of CIFAR-10.

Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", after Page 2019, describes it. A frozen first layer
whitens patches (Coates, Ng and Lee 2011). Convolutions start as the identity, and normalization has no scale. The
model therefore learns in few epochs.
"""

import math

import keras
import numpy as np

from pipeline.models.model import adapted_by, convolution, gives_logits

# The scale of the baseline CNN, at which bfloat16 represents every pixel exactly.
_SCALE, _OFFSET = 1 / 64, -2
_PATCH_SIDE = 2
# Running statistics cover a few steps, because they change quickly in a training of a few hundred steps.
_MOMENTUM = 0.6
# Added to each variance. It limits the amplification of noise in directions of low variance.
_EPSILON = 5e-4
# Pixels per chunk of images, which need 80 MB as float64 2×2 patches of three channels.
_PIXELS_PER_CHUNK = 800 * 32 * 32


def _whiten(model: keras.Model, images: np.ndarray) -> None:
    kernel, bias = whitening_filters(images, _PATCH_SIDE, scale=_SCALE, offset=_OFFSET)
    layer = model.get_layer("whiten")
    layer.kernel.assign(kernel)
    layer.bias.assign(bias)


@gives_logits
@adapted_by(_whiten)
def airbench_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the published convnet with 64, 256 and 256 filters and GELU, of 1,973,944 weights for 10 labels.

    A color image of 32 × 32 pixels takes 118 million multiplications, and 0.682 GFLOP in training.
    """
    return _convnet("airbench_convnet", image_shape, num_labels, widths=(64, 256, 256), activation="gelu")


@gives_logits
@adapted_by(_whiten)
def airbench_convnet_small(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build a convnet for CPUs with 32, 128 and 128 filters and ReLU. It takes 33 million multiplications per image."""
    return _convnet("airbench_convnet_small", image_shape, num_labels, widths=(32, 128, 128), activation="relu")


@gives_logits
@adapted_by(_whiten)
def airbench_convnet_large(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the convnet of airbench96_faster, with 128, 384 and 512 filters, of 9,921,848 weights for 10 labels.

    A residual connection skips the last two of three convolutions per block. It takes 452 million multiplications.
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
    # Filters include the negative of each direction, because the activation removes one sign.
    whiten = layers.Conv2D(2 * _PATCH_SIDE**2 * image_shape[2], _PATCH_SIDE, name="whiten")
    outputs = layers.Activation(activation, name=f"{activation}_whitened")(whiten(outputs))
    for block, filters in enumerate(widths, start=1):
        outputs = _block(outputs, str(block), filters, activation, residual=residual)
    # From images of 32 × 32 pixels, 3 × 3 positions remain.
    outputs = layers.GlobalMaxPooling2D(name="largest")(outputs)
    # Weights and outputs are each scaled by 1 / √width, which keeps early logits small.
    factor = widths[-1] ** -0.5
    initializer = keras.initializers.RandomNormal(stddev=factor)
    # The three digits of bfloat16 are too few for the loss.
    options = {"use_bias": False, "kernel_initializer": initializer, "dtype": "float32"}
    outputs = layers.Dense(num_labels, name="head", **options)(outputs)
    outputs = layers.Rescaling(factor, dtype="float32", name="logits")(outputs)
    model = keras.Model(inputs, outputs, name=name)
    # The published model trains the bias for three epochs. Freezing it saves the gradient of conv_1a's inputs, a tenth
    # of a step on a CPU.
    whiten.trainable = False
    for layer in model.layers:
        if layer.name.startswith("conv_"):
            _initialize_as_identity(layer)
    return model


def _block(
    inputs: keras.KerasTensor, block: str, filters: int, activation: str, *, residual: bool
) -> keras.KerasTensor:
    layers = keras.layers
    # Small images shrink to one position, which padding keeps.
    padding = "valid" if min(inputs.shape[1:3]) > 1 else "same"
    outputs = _convolution(filters, f"{block}a")(inputs)
    outputs = layers.MaxPooling2D(2, padding=padding, name=f"pool_{block}")(outputs)
    shortcut = layers.Activation(activation, name=f"{activation}_{block}a")(_normalization(f"{block}a")(outputs))
    outputs = _normalization(f"{block}b")(_convolution(filters, f"{block}b")(shortcut))
    outputs = layers.Activation(activation, name=f"{activation}_{block}b")(outputs)
    if not residual:
        return outputs
    outputs = _normalization(f"{block}c")(_convolution(filters, f"{block}c")(outputs))
    outputs = layers.Add(name=f"add_{block}")([shortcut, outputs])
    return layers.Activation(activation, name=f"{activation}_{block}c")(outputs)


def _convolution(filters: int, name: str) -> keras.Layer:
    # PyTorch's default initializer, which the publication uses.
    initializer = keras.initializers.VarianceScaling(1 / 3, mode="fan_in", distribution="uniform")
    return convolution(filters, f"conv_{name}", kernel_initializer=initializer)


def _normalization(name: str) -> keras.Layer:
    return keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=1e-5, scale=False, name=f"norm_{name}")


def _initialize_as_identity(convolution: keras.Layer) -> None:
    """Let each of the first filters copy one input channel."""
    kernel = keras.ops.convert_to_numpy(convolution.kernel).copy()
    channels = np.arange(min(kernel.shape[2:]))
    kernel[..., channels] = 0
    kernel[1, 1, channels, channels] = 1
    convolution.kernel.assign(kernel)


def whitening_filters(images: np.ndarray, side: int, *, scale: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute the kernel and bias that whiten patches of ``side`` × ``side`` pixels.

    Filters are the eigenvectors of the patches' covariance, divided by the roots of the eigenvalues. Their inputs are
    ``scale * pixel + offset`` for ``images``, uint8 (images, height, width, channels).

    Returns:
        The kernel, float32 (side, side, channels, 2 * n) with n = side² · channels, by descending variance and then the
        negatives. The bias, float32 (2 * n,), gives filtered patches a mean of 0.
    """
    size = side * side * images.shape[-1]
    # float64 represents these sums of integers exactly, so the order of addition does not matter.
    count, total, products = 0, np.zeros(size), np.zeros((size, size))
    images_per_chunk = max(_PIXELS_PER_CHUNK // math.prod(images.shape[1:3]), 1)
    for start in range(0, len(images), images_per_chunk):
        patches = _patches(images[start : start + images_per_chunk], side)
        count += len(patches)
        total += patches.sum(axis=0)
        products += patches.T @ patches
    mean = total / count
    covariance = (products / count - np.outer(mean, mean)) * scale**2
    variances, vectors = np.linalg.eigh(covariance)
    # The sign of an eigenvector is arbitrary. A positive largest component makes it the same on every machine.
    vectors = vectors[:, ::-1] * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(size)])[::-1]
    filters = vectors / np.sqrt(np.maximum(variances[::-1], 0) + _EPSILON)
    filters = np.concatenate([filters, -filters], axis=1)
    bias = -(mean * scale + offset) @ filters
    return filters.reshape(side, side, -1, 2 * size).astype(np.float32), bias.astype(np.float32)


def _patches(images: np.ndarray, side: int) -> np.ndarray:
    """All patches in the layout of a kernel, as float64 (patches, size)."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (side, side), axis=(1, 2))
    return np.moveaxis(windows, 3, -1).reshape(-1, side * side * images.shape[-1]).astype(np.float64)
