"""A convnet for images of 28 to 32 pixels."""

import keras

from pipeline.models.layers import convolution, normalized, rescaled
from pipeline.models.model import image_model


def compact_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """For images of 28 to 32 pixels: three pooled convolutions and a fourth, normalized, averaged over all places.

    Pooling comes before normalization and ReLU, which then take a quarter of the values. An image of 28 pixels a side
    takes 10 million multiplications.
    """
    layers = keras.layers
    stack = [rescaled()]
    for place, filters in enumerate((32, 64, 128, 128), start=1):
        stack.append(convolution(filters, f"{place}"))
        if place < 4:
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"))
        stack += normalized(f"{place}")
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.1, name="dropout")]
    return image_model("compact_convnet", image_shape, stack, num_labels)
