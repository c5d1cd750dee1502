"""The baseline CNN of the tutorials."""

import keras

from pipeline.networks.model import image_model


def baseline_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Three 2×2 convolutions and one hidden layer.

    The ReLUs of the tutorials come before the poolings. After them, they give the same from a quarter of the values.
    """
    layers = keras.layers
    stack = [
        # From -2 to 2: about zero mean and unit variance for natural images (CIFAR-10: mean 121, deviation 63). With
        # pixels from 0 to 1, five epochs end 1.8 points lower.
        layers.Rescaling(1 / 64, offset=-2, name="rescale"),
        layers.Conv2D(32, 2, padding="same", name="conv_1"),
        layers.MaxPooling2D(2, name="pool_1"),
        layers.ReLU(name="relu_1"),
        layers.Conv2D(64, 2, padding="same", name="conv_2"),
        layers.MaxPooling2D(2, name="pool_2"),
        layers.ReLU(name="relu_2"),
        layers.Conv2D(128, 2, padding="same", name="conv_3"),
        layers.MaxPooling2D(2, name="pool_3"),
        layers.ReLU(name="relu_3"),
        layers.Dropout(0.3, name="dropout_1"),
        layers.Flatten(name="flatten"),
        layers.Dense(100, activation="relu", name="hidden"),
        layers.Dropout(0.4, name="dropout_2"),
    ]
    return image_model("baseline_cnn", image_shape, stack, num_labels)
