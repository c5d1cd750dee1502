"""Models for tests that train and do not depend on the model. Their steps take little time to trace."""


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


def build_wide(input_shape, num_labels):
    """Return logits of two dense layers with 2 million weights, so 8 MB, whose step takes little time to trace."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Rescaling(1 / 255, name="rescaling"),
            layers.Flatten(name="flatten"),
            layers.Dense(640, activation="relu", use_bias=False, name="hidden"),
            layers.Dense(num_labels, name="logits", dtype="float32"),
        ],
        name="wide",
    )
