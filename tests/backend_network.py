"""Networks for trainings on both backends. Dropout would draw other masks on each, so the first has none."""

import keras
from keras import layers


def build(input_shape, num_labels):
    return keras.Sequential(
        [
            keras.Input(input_shape, dtype="uint8"),
            layers.Rescaling(1 / 255, name="rescaling"),
            layers.Conv2D(8, 3, padding="same", use_bias=False, name="convolution"),
            layers.BatchNormalization(name="normalization"),
            layers.ReLU(name="relu"),
            layers.MaxPooling2D(4, name="pooling"),
            layers.Flatten(name="flatten"),
            layers.Dense(num_labels, name="logits", dtype="float32"),
        ],
        name="without_dropout",
    )


def build_augmented(input_shape, num_labels):
    """A network as users write it, with float inputs and random layers. Keras compiles the rotation on no backend."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, strides=2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.2),
            layers.Dense(num_labels),
        ]
    )


def build_cropped(input_shape, num_labels):
    """A network with a layer that JAX cannot compile."""
    crop = layers.RandomCrop(*(side - 4 for side in input_shape[:2]))
    return keras.Sequential([keras.Input(input_shape), crop, layers.GlobalAveragePooling2D(), layers.Dense(num_labels)])
