"""Models and recipes by their names in the settings. A model of user code is examined before it is trained."""

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from pipeline.config.training import MODELS, RECIPES
from pipeline.errors import SettingsError
from pipeline.networks.model import LOGITS, PROBABILITIES, configure_keras
from pipeline.networks.own import call, in_brief, load_function, refusal
from pipeline.networks.recipes import Recipe
from pipeline.records.features import DISTRIBUTION, VALUES, Task

# Three poolings leave one pixel of it.
MIN_IMAGE_SIDE = 8
_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}

_EXAMINED_EXAMPLES = 4
# Sums of probabilities in bfloat16, which have three digits.
_TOLERANCE = 0.02

_logger = logging.getLogger(__name__)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        SettingsError: user code cannot be imported. The optimizer of its recipe raises one if it makes none.
    """
    found = load_function("recipe", RECIPES.get(name, name))
    if name in RECIPES.builtin:
        return found
    recipe = found if isinstance(found, Recipe) else Recipe(found)

    def optimizer(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        made = call("recipe", name, recipe.optimizer, total_steps, scale)
        if not isinstance(made, keras.optimizers.Optimizer):
            raise refusal(name, f"it made {made!r:.100}, no Keras optimizer", "recipe")
        return made

    return replace(recipe, optimizer=optimizer)


def build_network(task: Task, name: str, precision: str) -> keras.Model:
    """``build_model`` for the examples of a task. Variables are float32 in every ``precision`` of the computation.

    Raises:
        SettingsError: the model does not take such examples.
    """
    configure_keras()
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
    if name in MODELS.builtin and len(input_shape) == 3 and min(input_shape[:2]) < MIN_IMAGE_SIDE:
        raise SettingsError(
            f"[Train] model: {name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {input_shape}. "
            "Choose another dataset or model."
        )
    model = call("model", name, _builder(name), input_shape, num_labels)
    if not isinstance(model, keras.Model):
        raise refusal(name, f"it returned {model!r:.100}, no keras.Model")
    if not model.built:
        _outputs(name, model, np.zeros((1, *input_shape), np.uint8))
    return model


def _builder(name: str) -> Callable:
    return load_function("model", MODELS.get(name, name))


def kind_of_outputs(task: Task, name: str, precision: str) -> str:
    """Whether a model gives "logits", "probabilities" or "values". A model of user code is built and examined.

    Raises:
        SettingsError: the examination of user code failed.
    """
    if name in MODELS.builtin and task.meaning == DISTRIBUTION:
        return getattr(_builder(name), "outputs", PROBABILITIES)
    kind = _examined(name, build_network(task, name, precision), task)
    _logger.info("%s gives %s", name, kind)
    return kind


def find_adapter(name: str) -> Callable[[keras.Model, np.ndarray], None] | None:
    """The function that adapts a model of this name to examples of train, or None; see ``adapted_by``.

    Raises:
        SettingsError: user code cannot be imported. The function raises one if user code fails.
    """
    adapt = getattr(_builder(name), "adapt", None)
    return adapt and (lambda model, inputs: call("model", name, adapt, model, inputs))


def untrained_copy(model: keras.Model, input_shape: tuple[int, ...]) -> keras.Model:
    """A copy from the model's configuration, not compiled, with the same layer names."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy(np.zeros((1, *input_shape), np.uint8))
    return copy


def _examined(name: str, model: keras.Model, task: Task) -> str:
    """Whether a user's model gives "logits", "probabilities" or "values", found with a few random examples."""
    inputs = np.random.default_rng(0).integers(0, task.inputs, (_EXAMINED_EXAMPLES, *task.input_shape), np.uint8)
    outputs = _outputs(name, model, inputs)
    expected = (_EXAMINED_EXAMPLES, *task.output_shape)
    if outputs.shape != expected:
        raise refusal(name, f"its outputs should have the shape {expected}; they have {outputs.shape}")
    if task.label_shape == task.input_shape:
        _check_order(name, model, inputs, outputs, task)
    _check_saving(name, model, inputs, outputs)
    if task.meaning == VALUES:
        return VALUES
    # Before the sums, because those of a few examples may be 1 by chance.
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    if getattr(activation, "__name__", "") == "sigmoid":
        raise refusal(name, "a sigmoid gives neither logits nor probabilities. Make it softmax, or leave it out")
    are_probabilities = (outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=_TOLERANCE)
    return PROBABILITIES if are_probabilities else LOGITS


def _outputs(name: str, model: keras.Model, inputs: np.ndarray) -> np.ndarray:
    def network(batch: np.ndarray) -> keras.KerasTensor:
        return model(batch, training=False)

    outputs = call("model", name, network, inputs)
    if isinstance(outputs, dict | list | tuple):
        raise refusal(name, f"its network has {len(outputs)} outputs")
    return keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))


def _check_order(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray, task: Task) -> None:
    """Refuse a model whose outputs depend on the tokens that they predict."""
    length = inputs.shape[1]
    # Several cuts, because a model that looks ahead in blocks does not look across each place.
    for cut in sorted({1, length // 3, length // 2, length // 2 + 1, length - 1} - {0, length}):
        other = inputs.copy()
        other[:, cut:] = (other[:, cut:] + 1) % task.inputs
        if not np.allclose(_outputs(name, model, other)[:, :cut], outputs[:, :cut], rtol=0.01, atol=0.01):
            raise refusal(
                name,
                "its outputs depend on characters that come after their place, which they are to predict. Leave out "
                'Bidirectional, make convolutions padding="causal" and attention use_causal_mask=True',
            )


def _check_saving(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """Refuse a model that cannot be loaded without this project."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        try:
            model.save(path)
            loaded = keras.saving.load_model(path, safe_mode=True)
            found = keras.ops.convert_to_numpy(keras.ops.cast(loaded(inputs, training=False), "float32"))
        except Exception as error:
            raise refusal(
                name,
                f"its network cannot be saved and loaded: {in_brief(error)}. Classes and functions of your own need "
                "@keras.saving.register_keras_serializable(), and no Lambda",
            ) from error
    if not np.allclose(found, outputs, rtol=0.01, atol=0.01, equal_nan=True):
        raise refusal(name, "its network gives other outputs once it is saved and loaded")
