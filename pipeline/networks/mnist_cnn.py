"""The MNIST CNN of the tutorials."""

import keras


def mnist_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Two 2×2 convolutions, each pooled and thinned, and one hidden layer, as published.

    412,778 weights for MNIST, most of them the hidden layer's: 320, 8,224, 401,664 and 2,570.
    """
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(image_shape, dtype="uint8"),
            layers.Rescaling(1 / 255, name="rescale"),
            layers.Conv2D(64, 2, padding="same", activation="relu", name="conv_1"),
            layers.MaxPooling2D(2, name="pool_1"),
            layers.Dropout(0.3, name="dropout_1"),
            layers.Conv2D(32, 2, padding="same", activation="relu", name="conv_2"),
            layers.MaxPooling2D(2, name="pool_2"),
            layers.Dropout(0.3, name="dropout_2"),
            layers.Flatten(name="flatten"),
            layers.Dense(256, activation="relu", name="hidden"),
            layers.Dropout(0.5, name="dropout_3"),
            # Probabilities in bfloat16 have three digits: too few for the loss.
            layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
        ],
        name="mnist_cnn",
    )
