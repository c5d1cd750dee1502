"""A small convnet for photographs of 96 to 192 pixels a side, such as flowers."""

import keras

# Filters of the first stage; each later stage has twice as many.
_WIDTH = 24
# The usual 0.99 follows the statistics over the last hundreds of steps, which is all there is of a small dataset.
_MOMENTUM = 0.9


def small_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Two convolutions of stride 2, then two stages of two, each pooled between; batch-normalised, averaged at the end.

    The first two leave a sixteenth of the pixels, and each stage's second convolution sees a quarter of its first's:
    82 million multiplications for an image of 96 pixels a side, half of what they are with the poolings behind. The
    average takes any size of image: it has as many weights at 96 pixels as at 192, where a hidden layer over all
    places would have four times as many.
    """
    layers = keras.layers
    stack = [
        keras.Input(image_shape, dtype="uint8"),
        # As in the baseline CNN.
        layers.Rescaling(1 / 64, offset=-2, name="rescale"),
        *_convolution(_WIDTH, "1", kernel=5, strides=2),
        *_convolution(2 * _WIDTH, "2", strides=2),
    ]
    for stage, filters in (("3", 4 * _WIDTH), ("4", 8 * _WIDTH)):
        stack += [
            *_convolution(filters, f"{stage}a"),
            # Of small images, too, one place is left.
            layers.MaxPooling2D(2, padding="same", name=f"pool_{stage}"),
            *_convolution(filters, f"{stage}b"),
        ]
    stack += [
        layers.GlobalAveragePooling2D(name="average"),
        layers.Dropout(0.2, name="dropout"),
        # Probabilities in bfloat16 have three digits: too few for the loss.
        layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
    ]
    return keras.Sequential(stack, name="small_convnet")


def _convolution(filters: int, name: str, *, kernel: int = 3, strides: int = 1) -> list[keras.layers.Layer]:
    layers = keras.layers
    return [
        # The normalisation has the bias.
        layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, name=f"conv_{name}"),
        layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{name}"),
        layers.Activation("relu", name=f"relu_{name}"),
    ]
