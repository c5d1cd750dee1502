"""Keras networks, by the name the settings call them (… → stream → training → …).

Every network takes uint8 images and rescales them in its first layer, so that a saved model takes the pixels that
lie in the records, and ends in float32 probabilities whatever precision it computes in.
"""

from collections.abc import Callable

import keras

MIN_IMAGE_SIDE = 8


def baseline_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Three 2×2 convolutions and one hidden layer: the network of the tutorials this project grew from."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(image_shape, dtype="uint8"),
            # From -2 to 2: zero mean and unit variance, about, for natural images (CIFAR-10: mean 121, deviation 63).
            # With pixels from 0 to 1 the same five epochs end 1.8 points lower.
            layers.Rescaling(1 / 64, offset=-2, name="rescale"),
            layers.Conv2D(32, 2, padding="same", activation="relu", name="conv_1"),
            layers.MaxPooling2D(2, name="pool_1"),
            layers.Conv2D(64, 2, padding="same", activation="relu", name="conv_2"),
            layers.MaxPooling2D(2, name="pool_2"),
            layers.Conv2D(128, 2, padding="same", activation="relu", name="conv_3"),
            layers.MaxPooling2D(2, name="pool_3"),
            layers.Dropout(0.3, name="dropout_1"),
            layers.Flatten(name="flatten"),
            layers.Dense(100, activation="relu", name="hidden"),
            layers.Dropout(0.4, name="dropout_2"),
            # Probabilities in bfloat16 have three digits: too few for the loss.
            layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
        ],
        name="baseline_cnn",
    )


NETWORKS: dict[str, Callable[[tuple[int, int, int], int], keras.Model]] = {"baseline_cnn": baseline_cnn}


def build_model(name: str, image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """A new network: uint8 images (batch, height, width, channels) → float32 probabilities (batch, num_labels).

    Raises:
        ValueError: the images are smaller than the network's three poolings allow.
    """
    if min(image_shape[:2]) < MIN_IMAGE_SIDE:
        raise ValueError(f"{name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {image_shape}")
    return NETWORKS[name](image_shape, num_labels)
