"""Models of ``keras.applications`` for uint8 images, with the preprocessing of their family and their weights.

An attribute of this module is the builder of the model with its name, such as ``MobileNetV2``.
"""

import socket
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import DatasetUnavailableError
from pipeline.models.model import gives_logits, last_layer, named_weights

# Standard deviations of the colors in ImageNet, as EfficientNet uses them.
_DEVIATIONS = np.float32([0.229, 0.224, 0.225])
_TIMEOUT_SECONDS = 60


def __getattr__(name: str) -> Any:
    """Return the builder of a model."""
    if not callable(getattr(keras.applications, name, None)):
        raise AttributeError(f"keras.applications has no model {name}.")
    return gives_logits(partial(_build, name))


def _build(name: str, image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build a model with random weights. Images with one channel are repeated in three."""
    application = getattr(keras.applications, name)
    family = getattr(keras.applications, application.__module__.rpartition(".")[2])
    images = keras.Input(image_shape, dtype="uint8")
    x = keras.ops.cast(images, "float32")
    if image_shape[-1] == 1:
        x = keras.ops.concatenate([x, x, x], axis=-1)
    options = {"input_tensor": family.preprocess_input(x), "input_shape": (*image_shape[:2], 3)}
    x = application(include_top=False, weights=None, pooling="avg", **options).output
    x = keras.layers.Dropout(0.2, name="dropout")(x)
    return keras.Model(images, keras.layers.Dense(num_labels, dtype="float32", name="logits")(x), name=name.lower())


def read_keras_weights(file: Path, model: keras.Model) -> dict[str, np.ndarray]:
    """Load a file of ``download`` into all layers of a model except the last. Return them by the names of variables.

    The names in the file may differ, so Keras assigns the weights in the order of the layers.
    """
    backbone = keras.Model(model.inputs[0], last_layer(model).input)
    backbone.load_weights(file)
    for layer in backbone.layers:
        # Keras adds a layer to an EfficientNet with weights from ImageNet, which divides by this root
        # (tensorflow/tensorflow issue 49930). A greater variance has the same effect.
        if isinstance(layer, keras.layers.Normalization) and layer.weights:
            mean, variance, count = layer.get_weights()
            layer.set_weights([mean, variance * _DEVIATIONS, count])
            layer.finalize_state()
    return named_weights(backbone)


def download(model: str, file: Path) -> None:
    """Let Keras download the weights of a [Train] model to ``file`` and check their digest, or raise an error."""
    reason, timeout = "", socket.getdefaulttimeout()
    # Otherwise, Keras waits without end behind a firewall that drops packets.
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)
    try:
        getattr(keras.applications, model.partition(":")[2])(include_top=False, weights="imagenet")
    # Keras raises a bare Exception.
    except Exception as error:
        reason = " ".join(str(error).split())
    finally:
        socket.setdefaulttimeout(timeout)
        keras.utils.clear_session()
    if not file.is_file():
        raise DatasetUnavailableError(
            f"[Train] model: The weights of {model} cannot be downloaded "
            f"({reason.rstrip('.') or 'Keras used another folder'}). Download "
            f"{file.name} on another machine, and copy it to {file.parent}. For random weights, pass "
            "--Train-initial-weights random."
        )
