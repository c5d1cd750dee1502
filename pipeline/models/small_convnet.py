"""Convnet for photographs of 96 to 192 pixels."""

import keras

from pipeline.models.model import convolution, normalized, rescaled, stacked

# Filters of the first stage. Each later stage has twice as many.
_WIDTH = 24


def small_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build a convnet of two convolutions with stride 2 and two stages of convolution, pooling and convolution.

    An image of 96 × 96 pixels takes 82 million multiplications, half as many as with pooling at the end of each stage.
    The global average accepts any image size. A hidden layer instead would have four times as many weights.
    """
    layers = keras.layers
    stack = [rescaled(), convolution(_WIDTH, "conv_1", kernel=5, strides=2), *normalized("1")]
    stack += [convolution(2 * _WIDTH, "conv_2", strides=2), *normalized("2")]
    for stage, filters in (("3", 4 * _WIDTH), ("4", 8 * _WIDTH)):
        stack += [convolution(filters, f"conv_{stage}a"), *normalized(f"{stage}a")]
        # Small images shrink to one position, which padding keeps.
        stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{stage}"))
        stack += [convolution(filters, f"conv_{stage}b"), *normalized(f"{stage}b")]
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.2, name="dropout")]
    return stacked("small_convnet", image_shape, stack, num_labels)
