"""The tutorials' program as published: arrays from 0 to 1, one-hot labels, float32, RMSprop, ``fit``'s defaults."""

import keras
import numpy as np

BATCH_SIZE = 128


def data(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 images (…, 32, 32, 3) from 0 to 1 and one-hot labels (…, 10)."""
    return images.astype(np.float32) / 255, keras.utils.to_categorical(labels, 10)


def model() -> keras.Model:
    """The baseline CNN on float32 images, compiled as published."""
    layers = keras.layers
    keras.config.set_dtype_policy("float32")
    network = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(128, 2, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(100, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
    return network
