"""Models for images: convnets of this project, and those of other tutorials as they were published."""

import keras

from pipeline.models.model import gives_logits, image_model

# The usual 0.99 follows more steps than a short training has.
_MOMENTUM = 0.9
# Filters of the first stage of the small convnet. Each later stage has twice as many.
_WIDTH = 24


def _rescaled() -> keras.layers.Layer:
    """From -2 to 2: about zero mean and unit variance for natural images (CIFAR-10: mean 121, deviation 63)."""
    # With pixels from 0 to 1, five epochs of the baseline CNN end 1.8 points lower.
    return keras.layers.Rescaling(1 / 64, offset=-2, name="rescale")


def _normalized(name: str) -> list[keras.layers.Layer]:
    layers = keras.layers
    return [
        layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{name}"),
        layers.Activation("relu", name=f"relu_{name}"),
    ]


def _convolution(filters: int, name: str, kernel: int = 3, strides: int = 1) -> keras.layers.Layer:
    """A convolution in front of a normalization, which has the bias."""
    return keras.layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, name=f"conv_{name}")


def baseline_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """The baseline CNN of the tutorials: three 2×2 convolutions and one hidden layer.

    The ReLUs of the tutorials come before the poolings. After them, they give the same from a quarter of the values.
    """
    layers = keras.layers
    stack = [_rescaled()]
    for place, filters in enumerate((32, 64, 128), start=1):
        stack += [
            layers.Conv2D(filters, 2, padding="same", name=f"conv_{place}"),
            layers.MaxPooling2D(2, name=f"pool_{place}"),
            layers.ReLU(name=f"relu_{place}"),
        ]
    stack += [
        layers.Dropout(0.3, name="dropout_1"),
        layers.Flatten(name="flatten"),
        layers.Dense(100, activation="relu", name="hidden"),
        layers.Dropout(0.4, name="dropout_2"),
    ]
    return image_model("baseline_cnn", image_shape, stack, num_labels)


def compact_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """For images of 28 to 32 pixels: three pooled convolutions and a fourth, normalized, averaged over all places.

    Pooling comes before normalization and ReLU, which then take a quarter of the values. An image of 28 pixels a side
    takes 10 million multiplications.
    """
    layers = keras.layers
    stack = [_rescaled()]
    for place, filters in enumerate((32, 64, 128, 128), start=1):
        stack.append(_convolution(filters, f"{place}"))
        if place < 4:
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"))
        stack += _normalized(f"{place}")
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.1, name="dropout")]
    return image_model("compact_convnet", image_shape, stack, num_labels)


def small_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """For photographs of 96 to 192 pixels: two convolutions of stride 2, then two stages of two with a pooling between.

    82 million multiplications for an image of 96 pixels a side, half as many as with the poolings last. The average
    takes any image size with the same weights. A hidden layer over all places would have four times as many.
    """
    layers = keras.layers
    stack = [_rescaled(), _convolution(_WIDTH, "1", kernel=5, strides=2), *_normalized("1")]
    stack += [_convolution(2 * _WIDTH, "2", strides=2), *_normalized("2")]
    for stage, filters in (("3", 4 * _WIDTH), ("4", 8 * _WIDTH)):
        stack += [_convolution(filters, f"{stage}a"), *_normalized(f"{stage}a")]
        # One place is left of small images.
        stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{stage}"))
        stack += [_convolution(filters, f"{stage}b"), *_normalized(f"{stage}b")]
    stack += [layers.GlobalAveragePooling2D(name="average"), layers.Dropout(0.2, name="dropout")]
    return image_model("small_convnet", image_shape, stack, num_labels)


@gives_logits
def mnist_dense(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """The dense MNIST model: 512 hidden units and dropout. It gives logits. 407,050 weights for MNIST."""
    layers = keras.layers
    stack = [
        # The published scale is unknown. MNIST has mean 33 and deviation 79. With pixels from 0 to 1, five epochs of
        # adam with batches of 1,024 end 0.7 points lower, at 96.7%.
        layers.Rescaling(1 / 64, offset=-0.5, name="rescale"),
        layers.Flatten(name="flatten"),
        layers.Dense(512, activation="relu", name="hidden"),
        layers.Dropout(0.2, name="dropout"),
    ]
    return image_model("mnist_dense", image_shape, stack, num_labels, activation=None)


def mnist_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """The MNIST CNN: two 2×2 convolutions and one hidden layer. 412,778 weights for MNIST."""
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
    return image_model("mnist_cnn", image_shape, stack, num_labels)


def fashion_cnn(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """The Fashion-MNIST CNN of tensorflow/tpu, fashion_mnist.ipynb: 1,619,470 weights for Fashion-MNIST."""
    layers = keras.layers
    stack = [layers.Rescaling(1 / 255, name="rescale")]
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
    ]
    return image_model("fashion_cnn", image_shape, stack, num_labels)


def flowers_convnet(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """The flowers convnet of Google's "Fast and lean data science", for photographs of 192×192 pixels.

    Seven convolutions and the average over all places: 293,233 weights for five labels.
    """
    layers = keras.layers
    stack = [layers.Rescaling(1 / 255, name="rescale")]
    for place, filters in enumerate((16, 30, 60, 90, 110, 130, 40), start=1):
        kernel = 1 if place == 7 else 3
        stack.append(layers.Conv2D(filters, kernel, padding="same", activation="relu", name=f"conv_{place}"))
        if 2 <= place <= 5:
            # One place is left of 12 and fewer pixels a side.
            stack.append(layers.MaxPooling2D(2, padding="same", name=f"pool_{place}"))
    stack.append(layers.GlobalAveragePooling2D(name="average"))
    return image_model("flowers_convnet", image_shape, stack, num_labels)
