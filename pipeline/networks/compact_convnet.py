"""A compact convnet for images of 28 to 32 pixels a side, such as digits and clothes."""

import keras

# As in the small convnet: the usual 0.99 follows more steps than a short training has.
_MOMENTUM = 0.9


def compact_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Three pooled convolutions of 32, 64 and 128 filters and one of 128, batch-normalised, averaged over all places.

    What is normalised and cut off at zero has been pooled before: a quarter of the values. An image of 28 pixels a side
    takes 10 million multiplications.
    """
    layers = keras.layers
    stack = [
        keras.Input(image_shape, dtype="uint8"),
        # As in the baseline CNN.
        layers.Rescaling(1 / 64, offset=-2, name="rescale"),
    ]
    for place, (filters, pooled) in enumerate(((32, True), (64, True), (128, True), (128, False)), start=1):
        # The normalisation has the bias.
        stack.append(layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv_{place}"))
        if pooled:
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"))
        stack += [
            layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{place}"),
            layers.Activation("relu", name=f"relu_{place}"),
        ]
    stack += [
        layers.GlobalAveragePooling2D(name="average"),
        layers.Dropout(0.1, name="dropout"),
        # Probabilities in bfloat16 have three digits: too few for the loss.
        layers.Dense(num_labels, activation="softmax", dtype="float32", name="probabilities"),
    ]
    return keras.Sequential(stack, name="compact_convnet")
