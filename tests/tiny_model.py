"""A model for tests that train and do not depend on the model. Its step takes little time to trace."""


def build(input_shape, num_labels):
    """Return logits of one convolution and one dense layer: three weights, so three updates to trace."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Rescaling(1 / 255, name="rescaling"),
            layers.Conv2D(4, 3, strides=2, padding="same", use_bias=False, name="convolution"),
            layers.Activation("gelu", name="gelu"),
            layers.MaxPooling2D(4, name="pooling"),
            layers.Flatten(name="flatten"),
            layers.Dense(num_labels, name="logits", dtype="float32"),
        ],
        name="tiny",
    )
