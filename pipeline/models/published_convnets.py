"""Image models as other tutorials published them."""

import keras

from pipeline.models.model import gives_logits, stacked


@gives_logits
def mnist_dense(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the dense MNIST model with 512 hidden units and dropout. It has 407,050 weights and returns logits."""
    layers = keras.layers
    stack = [
        # The published scale is unknown, and MNIST has mean 33 and deviation 79. With pixels from 0 to 1, the accuracy
        # after five epochs of adam with batches of 1,024 is 0.7 points lower, at 96.7%.
        layers.Rescaling(1 / 64, offset=-0.5, name="rescale"),
        layers.Flatten(name="flatten"),
        layers.Dense(512, activation="relu", name="hidden"),
        layers.Dropout(0.2, name="dropout"),
    ]
    return stacked("mnist_dense", image_shape, stack, num_labels, activation=None)


def mnist_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the MNIST CNN with two 2×2 convolutions and a hidden layer. It has 412,778 weights for MNIST."""
    layers = keras.layers
    stack = [
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
    ]
    return stacked("mnist_cnn", image_shape, stack, num_labels)


def fashion_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the Fashion-MNIST CNN of tensorflow/tpu, fashion_mnist.ipynb. It has 1,619,470 weights for this dataset."""
    layers = keras.layers
    stack = [layers.Rescaling(1 / 255, name="rescale")]
    for number, filters in enumerate((64, 128, 256), start=1):
        stack += [
            layers.BatchNormalization(name=f"norm_{number}"),
            layers.Conv2D(filters, 5, padding="same", activation="elu", name=f"conv_{number}"),
            layers.MaxPooling2D(2, name=f"pool_{number}"),
            layers.Dropout(0.25, name=f"dropout_{number}"),
        ]
    stack += [
        layers.Flatten(name="flatten"),
        layers.Dense(256, activation="elu", name="hidden"),
        layers.Dropout(0.5, name="dropout"),
    ]
    return stacked("fashion_cnn", image_shape, stack, num_labels)


def flowers_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build the flowers convnet of Google's "Fast and lean data science", for photographs of 192×192 pixels.

    It has seven convolutions and a global average, with 293,233 weights for five labels.
    """
    layers = keras.layers
    stack = [layers.Rescaling(1 / 255, name="rescale")]
    for number, filters in enumerate((16, 30, 60, 90, 110, 130, 40), start=1):
        kernel = 1 if number == 7 else 3
        stack.append(layers.Conv2D(filters, kernel, padding="same", activation="relu", name=f"conv_{number}"))
        if 2 <= number <= 5:
            # Images of at most 12 × 12 pixels shrink to one position, which padding keeps.
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{number}"))
    stack.append(layers.GlobalAveragePooling2D(name="average"))
    return stacked("flowers_convnet", image_shape, stack, num_labels)
