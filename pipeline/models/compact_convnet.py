"""Convnet for images of 28 to 32 pixels."""

import keras

from pipeline.models.model import convolution, normalized, rescaled, stacked


def compact_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build a convnet of three pooled convolutions, a fourth convolution and a global average.

    Pooling precedes normalization and ReLU, so they process a quarter of the values. An image of 28 × 28 pixels takes
    10 million multiplications.
    """
    layers = keras.layers
    stack = [rescaled()]
    for number, filters in enumerate((32, 64, 128, 128), start=1):
        stack.append(convolution(filters, f"conv_{number}"))
        if number < 4:
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{number}"))
        stack += normalized(f"{number}")
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.1, name="dropout")]
    return stacked("compact_convnet", image_shape, stack, num_labels)
