"""A small convnet for photographs of 96 to 192 pixels a side, such as flowers."""

import keras

from pipeline.networks.model import image_model

# Filters of the first stage; each later stage has twice as many.
_WIDTH = 24
# The usual 0.99 follows more steps than a short training has.
_MOMENTUM = 0.9


def small_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Two convolutions of stride 2, then two stages of two with a pooling between, normalized, averaged at the end.

    82 million multiplications for an image of 96 pixels a side, half as many as with the poolings last. The average
    takes any image size with the same weights. A hidden layer over all places would have four times as many.
    """
    layers = keras.layers
    stack = [
        # As in the baseline CNN.
        layers.Rescaling(1 / 64, offset=-2, name="rescale"),
        *_convolution(_WIDTH, "1", kernel=5, strides=2),
        *_convolution(2 * _WIDTH, "2", strides=2),
    ]
    for stage, filters in (("3", 4 * _WIDTH), ("4", 8 * _WIDTH)):
        stack += [
            *_convolution(filters, f"{stage}a"),
            # One place is left of small images.
            layers.MaxPooling2D(2, padding="same", name=f"pool_{stage}"),
            *_convolution(filters, f"{stage}b"),
        ]
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.2, name="dropout")]
    return image_model("small_convnet", image_shape, stack, num_labels)


def _convolution(filters: int, name: str, *, kernel: int = 3, strides: int = 1) -> list[keras.layers.Layer]:
    layers = keras.layers
    return [
        # The normalization has the bias.
        layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, name=f"conv_{name}"),
        layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{name}"),
        layers.Activation("relu", name=f"relu_{name}"),
    ]
