"""A convnet for photographs of 96 to 192 pixels."""

import keras

from pipeline.models.layers import convolution, normalized, rescaled
from pipeline.models.model import image_model

# Filters of the first stage. Each later stage has twice as many.
_WIDTH = 24


def small_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """For photographs of 96 to 192 pixels: two convolutions of stride 2, then two stages of two with a pooling between.

    82 million multiplications for an image of 96 pixels a side, half as many as with the poolings last. The average
    takes any image size with the same weights. A hidden layer over all places would have four times as many.
    """
    layers = keras.layers
    stack = [rescaled(), convolution(_WIDTH, "1", kernel=5, strides=2), *normalized("1")]
    stack += [convolution(2 * _WIDTH, "2", strides=2), *normalized("2")]
    for stage, filters in (("3", 4 * _WIDTH), ("4", 8 * _WIDTH)):
        stack += [convolution(filters, f"{stage}a"), *normalized(f"{stage}a")]
        # One place is left of small images.
        stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{stage}"))
        stack += [convolution(filters, f"{stage}b"), *normalized(f"{stage}b")]
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.2, name="dropout")]
    return image_model("small_convnet", image_shape, stack, num_labels)
