"""The convnet of airbench94, for small photographs such as CIFAR-10's (… → stream → training → …).

Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU", after Page 2019. What makes it learn in few epochs: a
first layer that whitens patches and is not trained, convolutions that begin by handing on what they are given, and a
normalisation without scale, which an activation that is about the same at every scale does not need.
"""

import keras
import numpy as np

from pipeline.networks.adapted import adapted_by
from pipeline.networks.whitening import whitening_filters

# As in the baseline CNN; bfloat16 holds every pixel exactly.
_SCALE, _OFFSET = 1 / 64, -2
_PATCH_SIDE = 2
# Running statistics of the last few steps: of the few hundred that there are in all, the first are soon out of date.
_MOMENTUM = 0.6


def _whiten(model: keras.Model, images: np.ndarray) -> None:
    kernel, bias = whitening_filters(images, _PATCH_SIDE, scale=_SCALE, offset=_OFFSET)
    layer = model.get_layer("whiten")
    layer.kernel.assign(kernel)
    layer.bias.assign(bias)


@adapted_by(_whiten)
def airbench_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 64, 256 and 256 filters with GELU, as published: 1,973,944 weights of 32 × 32 colours and 10 labels.

    An image of 32 pixels a side takes 118 million multiplications, 0.682 GFLOP in training.
    """
    return _convnet("airbench_convnet", image_shape, num_labels, widths=(64, 256, 256), activation="gelu")


@adapted_by(_whiten)
def airbench_convnet_small(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 32, 128 and 128 filters with ReLU, for a CPU: 33 million multiplications, 3.6 times fewer."""
    return _convnet("airbench_convnet_small", image_shape, num_labels, widths=(32, 128, 128), activation="relu")


@adapted_by(_whiten)
def airbench_convnet_large(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Blocks of 128, 384 and 512 filters, each with a third convolution; a residual goes past the last two.

    That of airbench96_faster: 9,921,848 weights, 452 million multiplications, 3.8 times as many.
    """
    return _convnet(
        "airbench_convnet_large", image_shape, num_labels, widths=(128, 384, 512), activation="gelu", residual=True
    )


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
    # Each direction and its negative: what one of them cuts off at zero the other has.
    whiten = layers.Conv2D(2 * _PATCH_SIDE**2 * image_shape[2], _PATCH_SIDE, name="whiten")
    outputs = layers.Activation(activation, name=f"{activation}_whitened")(whiten(outputs))
    for block, filters in enumerate(widths, start=1):
        outputs = _block(outputs, str(block), filters, activation, residual=residual)
    # Of 32 pixels a side 3 are left.
    outputs = layers.GlobalMaxPooling2D(name="largest")(outputs)
    # Weights and outputs share the factor that keeps logits small at the start: each is 1 / √width.
    factor = widths[-1] ** -0.5
    drawn = keras.initializers.RandomNormal(stddev=factor)
    # Logits in bfloat16 have three digits: too few for the loss.
    outputs = layers.Dense(num_labels, use_bias=False, kernel_initializer=drawn, dtype="float32", name="head")(outputs)
    outputs = layers.Rescaling(factor, dtype="float32", name="logits")(outputs)
    model = keras.Model(inputs, outputs, name=name)
    # Its bias neither, which as published is trained for three epochs: the gradient of conv_1a's inputs, a tenth of a
    # step on a CPU, would be for this bias alone.
    whiten.trainable = False
    for layer in model.layers:
        if layer.name.startswith("conv_"):
            layer.kernel.assign(_handing_on(keras.ops.convert_to_numpy(layer.kernel)))
    return model


def _block(
    inputs: keras.KerasTensor, block: str, filters: int, activation: str, *, residual: bool
) -> keras.KerasTensor:
    layers = keras.layers
    # Of small images, too, one place is left.
    padding = "valid" if min(inputs.shape[1:3]) > 1 else "same"
    outputs = _convolution(filters, f"conv_{block}a")(inputs)
    outputs = layers.MaxPooling2D(2, padding=padding, name=f"pool_{block}")(outputs)
    first = _activated(_normalised(outputs, f"{block}a"), activation, f"{block}a")
    outputs = _normalised(_convolution(filters, f"conv_{block}b")(first), f"{block}b")
    outputs = _activated(outputs, activation, f"{block}b")
    if not residual:
        return outputs
    outputs = _normalised(_convolution(filters, f"conv_{block}c")(outputs), f"{block}c")
    return _activated(layers.Add(name=f"add_{block}")([first, outputs]), activation, f"{block}c")


def _convolution(filters: int, name: str) -> keras.layers.Layer:
    # As PyTorch draws them, which all of the published figures come from.
    drawn = keras.initializers.VarianceScaling(1 / 3, mode="fan_in", distribution="uniform")
    # The normalisation has the bias.
    return keras.layers.Conv2D(filters, 3, padding="same", use_bias=False, kernel_initializer=drawn, name=name)


def _normalised(inputs: keras.KerasTensor, name: str) -> keras.KerasTensor:
    return keras.layers.BatchNormalization(momentum=_MOMENTUM, epsilon=1e-5, scale=False, name=f"norm_{name}")(inputs)


def _activated(inputs: keras.KerasTensor, activation: str, name: str) -> keras.KerasTensor:
    return keras.layers.Activation(activation, name=f"{activation}_{name}")(inputs)


def _handing_on(kernel: np.ndarray) -> np.ndarray:
    """A kernel (3, 3, inputs, filters) whose first filters each hand on one of the inputs; the others as they were."""
    kernel = kernel.copy()
    channels = np.arange(min(kernel.shape[2:]))
    kernel[..., channels] = 0
    kernel[1, 1, channels, channels] = 1
    return kernel
