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


def build_subclassed(input_shape, num_labels):
    """Return a model that only this code can build, because Keras cannot save its class."""
    import keras

    layers = keras.layers
    stack = [layers.Rescaling(1 / 255), layers.Conv2D(4, 3, strides=2), layers.GlobalMaxPooling2D()]

    class Stack(keras.Model):
        def __init__(self, *stack):
            super().__init__()
            self.stack = stack

        def call(self, images):
            for layer in self.stack:
                images = layer(images)
            return images

    return Stack(*stack, layers.Dense(num_labels, dtype="float32"))


def build_by_length(input_shape, num_labels):
    """Return logits that depend only on the number of bytes of a text."""
    import keras

    layers = keras.layers
    codes = keras.initializers.Constant([[0.0], *[[1.0]] * 255])
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Embedding(256, 1, codes, trainable=False, name="is_byte"),
            layers.GlobalAveragePooling1D(name="length"),
            layers.Dense(32, activation="relu", name="hidden"),
            layers.Dense(num_labels, name="logits", dtype="float32"),
        ],
        name="by_length",
    )
