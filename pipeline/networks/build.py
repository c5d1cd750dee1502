"""Models and recipes by their names in the settings."""

import logging
from collections.abc import Callable, Mapping

import keras
import numpy as np

from pipeline.config.own_code import is_own
from pipeline.config.training import MODELS, TEXT_MODELS
from pipeline.errors import SettingsError
from pipeline.networks import own
from pipeline.networks.model import LOGITS, PROBABILITIES, configure_keras
from pipeline.networks.recipes import RECIPES, Recipe
from pipeline.problems.find import problem_of_records

# Three poolings leave one pixel of it.
MIN_IMAGE_SIDE = 8
_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}
# The others give probabilities.
_GIVE_LOGITS = (
    *("mnist_dense", "airbench_convnet", "airbench_convnet_small", "airbench_convnet_large"),
    *TEXT_MODELS,
)

_logger = logging.getLogger(__name__)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        SettingsError: user code is no recipe.
    """
    return own.load_recipe(name) if is_own(name) else RECIPES[name]


def build_network(manifest: Mapping, name: str, precision: str) -> keras.Model:
    """``build_model`` for the examples of records. Variables are float32 in every ``precision`` of the computation.

    Raises:
        SettingsError: the model does not take such examples, or Keras limits epochs or steps.
    """
    configure_keras()
    task = problem_of_records(manifest).task(manifest)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        return build_model(name, task.input_shape, task.num_labels)
    finally:
        keras.config.set_dtype_policy(before)


def build_model(name: str, input_shape: tuple[int, ...], num_labels: int) -> keras.Model:
    """A new model for examples of this shape.

    For images: uint8 (batch, height, width, channels) → float32 (batch, num_labels). For a text: uint8 (batch, length)
    → float32 (batch, length, num_labels). Outputs are logits or probabilities, see ``kind_of_outputs``.

    Raises:
        SettingsError: the images are smaller than the models allow, or user code failed.
    """
    if not is_own(name) and len(input_shape) == 3 and min(input_shape[:2]) < MIN_IMAGE_SIDE:
        raise SettingsError(
            f"[Train] model: {name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {input_shape}. "
            "Choose another dataset or model."
        )
    return own.build(MODELS.get(name, name), input_shape, num_labels)


def kind_of_outputs(manifest: Mapping, name: str, precision: str) -> str:
    """Whether a model gives "logits" or "probabilities". A model of user code is built and examined.

    Raises:
        SettingsError: the examination of user code failed.
    """
    if not is_own(name):
        return LOGITS if name in _GIVE_LOGITS else PROBABILITIES
    task = problem_of_records(manifest).task(manifest)
    kind = own.examined(name, build_network(manifest, name, precision), task)
    _logger.info("%s gives %s", name, kind)
    return kind


def find_adapter(name: str) -> Callable[[keras.Model, np.ndarray], None] | None:
    """The function that adapts a model of this name to examples of train, or None; see ``adapted_by``.

    Raises:
        SettingsError: user code cannot be imported. The function raises one if user code fails.
    """
    return own.load_adapter(MODELS.get(name, name))
