"""A model of one hidden layer, and a recipe."""

import keras


def dense(input_shape, num_outputs):
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(32, activation="relu", name="hidden"),
        keras.layers.Dense(num_outputs, name="sum"),
    ]
    return keras.Sequential([keras.Input(input_shape, dtype="uint8"), *layers])


def adam(total_steps, scale):
    return keras.optimizers.Adam(0.01 * scale)
