"""Convnet of the tutorials, for small images."""

import keras

from pipeline.models.model import rescaled, stacked


def baseline_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the baseline CNN of the tutorials with three 2×2 convolutions and a hidden layer.

    In the tutorials, ReLU precedes pooling. After pooling, it returns the same result from a quarter of the values.
    """
    layers = keras.layers
    stack = [rescaled()]
    for number, filters in enumerate((32, 64, 128), start=1):
        stack += [
            layers.Conv2D(filters, 2, padding="same", name=f"conv_{number}"),
            layers.MaxPooling2D(2, name=f"pool_{number}"),
            layers.ReLU(name=f"relu_{number}"),
        ]
    stack += [
        layers.Dropout(0.3, name="dropout_1"),
        layers.Flatten(name="flatten"),
        layers.Dense(100, activation="relu", name="hidden"),
        layers.Dropout(0.4, name="dropout_2"),
    ]
    return stacked("baseline_cnn", image_shape, stack, num_labels)
