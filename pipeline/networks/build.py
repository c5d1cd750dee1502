"""Models and recipes by their names in the settings."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np

from pipeline.config.own_code import is_own
from pipeline.errors import SettingsError
from pipeline.networks import own
from pipeline.networks.airbench_convnet import airbench_convnet, airbench_convnet_large, airbench_convnet_small
from pipeline.networks.baseline_cnn import baseline_cnn
from pipeline.networks.char_lstm import TEXT_NETWORKS
from pipeline.networks.compact_convnet import compact_convnet
from pipeline.networks.model import LOGITS, PROBABILITIES, configure_keras
from pipeline.networks.recipes import RECIPES, Recipe, overridden
from pipeline.networks.small_convnet import small_convnet
from pipeline.networks.tutorials import fashion_cnn, flowers_convnet, mnist_cnn, mnist_dense
from pipeline.problems.find import problem_of_records
from pipeline.problems.problem import Task

# Three poolings leave one pixel of it.
MIN_IMAGE_SIDE = 8

_logger = logging.getLogger(__name__)

_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}


NETWORKS: dict[str, Callable[[tuple[int, ...], int], keras.Model]] = {
    "baseline_cnn": baseline_cnn,
    "compact_convnet": compact_convnet,
    "small_convnet": small_convnet,
    "airbench_convnet": airbench_convnet,
    "airbench_convnet_small": airbench_convnet_small,
    "airbench_convnet_large": airbench_convnet_large,
    "mnist_dense": mnist_dense,
    "mnist_cnn": mnist_cnn,
    "fashion_cnn": fashion_cnn,
    "flowers_convnet": flowers_convnet,
    **TEXT_NETWORKS,
}
# The others give probabilities.
_GIVE_LOGITS = (
    *("mnist_dense", "airbench_convnet", "airbench_convnet_small", "airbench_convnet_large"),
    *TEXT_NETWORKS,
)


def find_recipe(name: str, **overrides: float) -> Recipe:
    """The recipe of this name, with the settings that override it; see ``overridden``.

    Raises:
        SettingsError: user code is no recipe.
    """
    return overridden(own.load_recipe(name) if is_own(name) else RECIPES[name], **overrides)


def build_network(manifest: Mapping, name: str, precision: str) -> keras.Model:
    """``build_model`` for the examples of records.

    Args:
        manifest: that of the records.
        name: as in the settings.
        precision: of the computation, "float32", "tf32" or "bfloat16". Variables are always float32.

    Raises:
        SettingsError: the model does not take such examples, or Keras limits epochs or steps.
    """
    configure_keras()
    task = _task(manifest)
    try:
        with _computing_in(precision):
            return build_model(name, task.input_shape, task.num_labels)
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(f"[Train] model: {error}. Choose another dataset or model.") from error


@contextlib.contextmanager
def _computing_in(precision: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def kind_of_outputs(manifest: Mapping, name: str, precision: str) -> str:
    """Whether a model gives "logits" or "probabilities". A model of user code is built and examined.

    Raises:
        SettingsError: the examination of user code failed.
    """
    if not is_own(name):
        return LOGITS if name in _GIVE_LOGITS else PROBABILITIES
    kind = own.examined(name, build_network(manifest, name, precision), _task(manifest))
    _logger.info("%s gives %s", name, kind)
    return kind


def takes_from_data(name: str) -> bool:
    """Whether a model of this name is adapted to examples before it is trained; see ``adapted_by``.

    Raises:
        SettingsError: user code cannot be imported.
    """
    return getattr(_function(name), "adapt", None) is not None


def adapt_model(name: str, model: keras.Model, inputs: np.ndarray) -> None:
    """Adapt a model to examples of train, uint8 (examples, *input_shape).

    Raises:
        SettingsError: user code failed.
    """
    adapt = _function(name).adapt
    if is_own(name):
        own.adapt_own(name, adapt, model, inputs)
    else:
        adapt(model, inputs)


def _function(name: str) -> Callable:
    return own.load_function("model", name) if is_own(name) else NETWORKS[name]


def _task(manifest: Mapping) -> Task:
    return problem_of_records(manifest).task(manifest)


def build_model(name: str, input_shape: tuple[int, ...], num_labels: int) -> keras.Model:
    """A new model for examples of this shape.

    For images: uint8 (batch, height, width, channels) → float32 (batch, num_labels). For a text: uint8 (batch, length)
    → float32 (batch, length, num_labels). Outputs are logits or probabilities, see ``kind_of_outputs``.

    Raises:
        ValueError: the images are smaller than the models allow.
    """
    if is_own(name):
        return own.build_own(name, input_shape, num_labels)
    if len(input_shape) == 3 and min(input_shape[:2]) < MIN_IMAGE_SIDE:
        raise ValueError(f"{name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {input_shape}")
    return NETWORKS[name](input_shape, num_labels)
