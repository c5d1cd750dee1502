"""A network without dropout, whose masks each backend draws in its own way."""

import keras
from keras import layers


def build(input_shape, num_labels):
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Rescaling(1 / 255, name="rescaling"),
            layers.Conv2D(8, 3, padding="same", use_bias=False, name="convolution"),
            layers.BatchNormalization(name="normalization"),
            layers.ReLU(name="relu"),
            layers.MaxPooling2D(4, name="pooling"),
            layers.Flatten(name="flatten"),
            layers.Dense(num_labels, name="logits", dtype="float32"),
        ],
        name="without_dropout",
    )
