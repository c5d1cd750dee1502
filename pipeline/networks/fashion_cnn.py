"""The Fashion-MNIST CNN of tensorflow/tpu, fashion_mnist.ipynb."""

import keras


def fashion_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Three 5×5 convolutions with elu, each of normalised input, and one hidden layer, as published.

    1,619,470 weights for Fashion-MNIST: 4, 256 and 512 of the normalisations, 1,664, 204,928 and 819,456 of the
    convolutions, 590,080 and 2,570 of the dense layers.
    """
    layers = keras.layers
    stack = [
        keras.Input(image_shape, dtype="uint8"),
        layers.Rescaling(1 / 255, name="rescale"),
    ]
    for place, filters in enumerate((64, 128, 256), start=1):
        stack += [
            layers.BatchNormalization(name=f"norm_{place}"),
            layers.Conv2D(filters, 5, padding="same", activation="elu", name=f"conv_{place}"),
            layers.MaxPooling2D(2, name=f"pool_{place}"),
            layers.Dropout(0.25, name=f"dropout_{place}"),
        ]
    stack += [
        layers.Flatten(name="flatten"),
        layers.Dense(256, activation="elu", name="hidden"),
        layers.Dropout(0.5, name="dropout"),
        # Probabilities in bfloat16 have three digits: too few for the loss.
        layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
    ]
    return keras.Sequential(stack, name="fashion_cnn")
