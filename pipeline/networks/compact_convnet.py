"""A compact convnet for images of 28 to 32 pixels a side, such as digits and clothes."""

import keras

from pipeline.networks.model import image_model

# The usual 0.99 follows more steps than a short training has.
_MOMENTUM = 0.9


def compact_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Three pooled convolutions of 32, 64 and 128 filters and one of 128, normalized, averaged over all places.

    Pooling comes before normalization and ReLU, which then take a quarter of the values. An image of 28 pixels a side
    takes 10 million multiplications.
    """
    layers = keras.layers
    # As in the baseline CNN.
    stack = [layers.Rescaling(1 / 64, offset=-2, name="rescale")]
    for place, (filters, pooled) in enumerate(((32, True), (64, True), (128, True), (128, False)), start=1):
        # The normalization has the bias.
        stack.append(layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv_{place}"))
        if pooled:
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"))
        stack += [
            layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{place}"),
            layers.Activation("relu", name=f"relu_{place}"),
        ]
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.1, name="dropout")]
    return image_model("compact_convnet", image_shape, stack, num_labels)
