"""Convolutional model for the labels of texts, which reads bytes. It needs no vocabulary and no language."""

import keras

from pipeline.models.model import stacked


def byte_cnn(input_shape: tuple[int], num_labels: int) -> keras.Model:
    """Build a model that finds short sequences of bytes anywhere in a text.

    Each byte has 16 random numbers, which training does not change. That saves a third of the time, and so do strides
    of 4 (docs/LOG.md).
    """
    layers = keras.layers
    codes = keras.initializers.RandomNormal(stddev=1.0)
    stack = [
        layers.Embedding(256, 16, codes, trainable=False, name="codes"),
        layers.Conv1D(256, 8, strides=4, padding="same", activation="relu", name="conv"),
        layers.GlobalMaxPooling1D(name="pool"),
        layers.Dropout(0.3, name="dropout"),
    ]
    return stacked("byte_cnn", input_shape, stack, num_labels)
