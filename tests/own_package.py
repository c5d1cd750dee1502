"""A network and a recipe of a user's own, as files of a package beside the project."""

import sys
from pathlib import Path

NETWORKS = '''
import keras

from my_package.layers import Scale
from my_package import blocks


def build(input_shape, num_labels):
    """Logits, of layers without names."""
    layers = [keras.Input(input_shape, dtype="uint8"), Scale(), *blocks.convolution(8)]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(num_labels)])


def sure(input_shape, num_labels):
    """Probabilities, of a model that is a function of its input and holds another."""
    images = keras.Input(input_shape, dtype="uint8")
    inner = keras.Sequential([keras.Input((*input_shape[:2], 3)), keras.layers.Conv2D(8, 3, 4)], name="inner")
    found = keras.layers.Flatten()(inner(Scale()(images)))
    return keras.Model(images, keras.layers.Softmax()(keras.layers.Dense(num_labels)(found)))


def unused():
    return 1
'''
SUBCLASSED = """
import keras


class Network(keras.Model):
    # Without get_config, so Keras cannot rebuild it from a file.
    def __init__(self, layers):
        super().__init__()
        self.stack = layers

    def call(self, images, training=False):
        outputs = keras.ops.cast(images, "float32") / 255
        for layer in self.stack:
            outputs = layer(outputs, training=training) if isinstance(layer, keras.layers.Dropout) else layer(outputs)
        return outputs


def build(input_shape, num_labels):
    layers = keras.layers
    stack = [layers.Conv2D(4, 3, strides=2, activation="relu"), layers.BatchNormalization(), layers.Dropout(0.1)]
    return Network([*stack, layers.Flatten(), layers.Dense(num_labels, dtype="float32")])
"""
LAYERS = """
import keras


@keras.saving.register_keras_serializable(package="my_package")
class Scale(keras.layers.Layer):
    def call(self, images):
        return keras.ops.cast(images, self.compute_dtype) / 255
"""
BLOCKS = """
from . import unneeded as _unneeded


def convolution(filters):
    import keras

    return [keras.layers.Conv2D(filters, 3, strides=2), keras.layers.ReLU()]
"""
RECIPES = """
import keras

from pipeline.models.training_recipes import Recipe


def recipe(total_steps, scale):
    return keras.optimizers.SGD(0.1 * scale, momentum=0.9)


smoothed = Recipe(recipe, label_smoothing=0.2)
"""


def write_package(folder: Path, **more: str) -> Path:
    """The package ``my_package`` in ``folder``, and in it a module for each of ``more``; returns its folder."""
    package = folder / "my_package"
    package.mkdir(parents=True)
    files = {
        "__init__": "",
        "networks": NETWORKS,
        "layers": LAYERS,
        "subclassed": SUBCLASSED,
        "blocks": BLOCKS,
        "recipes": RECIPES,
    }
    for name, text in {**files, "unneeded": "", "elsewhere": "x = 1\n", **more}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return package


def forget() -> None:
    """Let the next test import a package of this name anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]
