"""The flowers convnet of Google's "Fast and lean data science", for 192×192 photographs."""

import keras


def flowers_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """3×3 convolutions of 16, 30, 60, 90, 110 and 130 filters, one of 1×1 and 40, and the average over all places.

    With five labels it has the 293,233 weights that were published: 448, 4,350, 16,260, 48,690, 89,210, 128,830, 5,240
    and 205. Four poolings, after the second to the fifth convolution, bring 192 pixels a side to 12.
    """
    layers = keras.layers
    stack = [
        keras.Input(image_shape, dtype="uint8"),
        layers.Rescaling(1 / 255, name="rescale"),
        _convolution(16, "1"),
        *(
            layer
            for place, filters in enumerate((30, 60, 90, 110), start=2)
            for layer in (
                _convolution(filters, str(place)),
                # Of 12 and fewer pixels a side, too, one is left.
                layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"),
            )
        ),
        _convolution(130, "6"),
        _convolution(40, "7", kernel=1),
        layers.GlobalAveragePooling2D(name="average"),
        # Probabilities in bfloat16 have three digits: too few for the loss.
        layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
    ]
    return keras.Sequential(stack, name="flowers_convnet")


def _convolution(filters: int, name: str, *, kernel: int = 3) -> keras.layers.Layer:
    return keras.layers.Conv2D(filters, kernel, padding="same", activation="relu", name=f"conv_{name}")
