"""Models and recipes by their names in the settings, ``module:function`` for user code.

A model of user code is examined before it is trained.
"""

import importlib
import logging
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import SettingsError, message
from pipeline.models.model import LOGITS, PROBABILITIES, configure_keras
from pipeline.models.training_recipes import Recipe
from pipeline.optional_packages import is_local
from pipeline.records.features import DISTRIBUTION, VALUES, Task
from pipeline.settings.training import MODELS, RECIPES

# Three poolings leave one pixel of it.
MIN_IMAGE_SIDE = 8
_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}

_EXAMINED_EXAMPLES = 4
# Sums of probabilities in bfloat16, which have three digits.
_TOLERANCE = 0.02

_logger = logging.getLogger(__name__)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name. SettingsError: user code cannot be imported, or makes no optimizer when it is called."""
    found = load_function("training_recipe", RECIPES.get(name, name))
    if name in RECIPES.builtin:
        return found
    training_recipe = found if isinstance(found, Recipe) else Recipe(found)

    def optimizer(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        made = _call("training_recipe", name, training_recipe.optimizer, total_steps, scale)
        if not isinstance(made, keras.optimizers.Optimizer):
            raise _refusal(name, f"it made {made!r:.100}, no Keras optimizer", "training_recipe")
        return made

    return replace(training_recipe, optimizer=optimizer)


def build_network(task: Task, name: str, precision: str) -> keras.Model:
    """``build_model`` for the examples of a task. Variables are float32 in every ``precision`` of the computation."""
    configure_keras()
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        return build_model(name, task.input_shape, task.num_labels)
    finally:
        keras.config.set_dtype_policy(before)


def build_model(name: str, input_shape: tuple[int, ...], num_labels: int) -> keras.Model:
    """A new model: uint8 images (batch, height, width, channels) or tokens (batch, length) → float32 outputs."""
    if name in MODELS.builtin and len(input_shape) == 3 and min(input_shape[:2]) < MIN_IMAGE_SIDE:
        raise SettingsError(
            f"[Train] model: {name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {input_shape}. "
            "Choose another dataset or model."
        )
    model = _call("model", name, _builder(name), input_shape, num_labels)
    if not isinstance(model, keras.Model):
        raise _refusal(name, f"it returned {model!r:.100}, no keras.Model")
    if not model.built:
        _outputs(name, model, np.zeros((1, *input_shape), np.uint8))
    return model


def _builder(name: str) -> Callable:
    return load_function("model", MODELS.get(name, name))


def kind_of_outputs(task: Task, name: str, precision: str) -> str:
    """Whether a model gives "logits", "probabilities" or "values". A model of user code is built and examined."""
    if name in MODELS.builtin and task.meaning == DISTRIBUTION:
        return getattr(_builder(name), "outputs", PROBABILITIES)
    kind = _examined(name, build_network(task, name, precision), task)
    _logger.info("%s gives %s", name, kind)
    return kind


def find_adapter(name: str) -> Callable[[keras.Model, np.ndarray], None] | None:
    """The function that adapts a model of this name to examples of train, or None; see ``adapted_by``."""
    adapt = getattr(_builder(name), "adapt", None)
    return adapt and (lambda model, inputs: _call("model", name, adapt, model, inputs))


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
        raise _refusal(name, f"its outputs should have the shape {expected}; they have {outputs.shape}")
    if task.label_shape == task.input_shape:
        _check_order(name, model, inputs, outputs, task)
    _check_saving(name, model, inputs, outputs)
    if task.meaning == VALUES:
        return VALUES
    # Before the sums, because those of a few examples may be 1 by chance.
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    if getattr(activation, "__name__", "") == "sigmoid":
        raise _refusal(name, "a sigmoid gives neither logits nor probabilities. Make it softmax, or leave it out")
    are_probabilities = (outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=_TOLERANCE)
    return PROBABILITIES if are_probabilities else LOGITS


def _outputs(name: str, model: keras.Model, inputs: np.ndarray) -> np.ndarray:
    def network(batch: np.ndarray) -> keras.KerasTensor:
        return model(batch, training=False)

    outputs = _call("model", name, network, inputs)
    if isinstance(outputs, dict | list | tuple):
        raise _refusal(name, f"its network has {len(outputs)} outputs")
    return keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))


def _check_order(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray, task: Task) -> None:
    """Refuse a model whose outputs depend on the tokens that they predict."""
    length = inputs.shape[1]
    # Several cuts, because a model that looks ahead in blocks does not look across each place.
    for cut in sorted({1, length // 3, length // 2, length // 2 + 1, length - 1} - {0, length}):
        other = inputs.copy()
        other[:, cut:] = (other[:, cut:] + 1) % task.inputs
        if not np.allclose(_outputs(name, model, other)[:, :cut], outputs[:, :cut], rtol=0.01, atol=0.01):
            raise _refusal(
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
            raise _refusal(
                name,
                f"its network cannot be saved and loaded: {_in_brief(error)}. Classes and functions of your own need "
                "@keras.saving.register_keras_serializable(), and no Lambda",
            ) from error
    if not np.allclose(found, outputs, rtol=0.01, atol=0.01, equal_nan=True):
        raise _refusal(name, "its network gives other outputs once it is saved and loaded")


def load_function(setting: str, name: str) -> Any:
    """Import ``module:function``. SettingsError: the module cannot be imported, or has no such name."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    # User code may raise anything.
    except Exception as error:
        raise _refusal(name, f"importing it raised {_in_brief(error)}", setting) from error


def _call(setting: str, name: str, function: Callable, *arguments: Any) -> Any:
    """The result of a function. SettingsError: it raised an error."""
    try:
        return function(*arguments)
    except SettingsError:
        raise
    except Exception as error:
        given = [_shown(argument) for argument in arguments]
        called = getattr(function, "__name__", name)
        raise _refusal(name, f"{called}({', '.join(given)}) raised {_in_brief(error)}", setting) from error


def _refusal(name: str, problem: str, setting: str = "model") -> SettingsError:
    return SettingsError(f"[Train] {setting}: expected {_signature(setting)}, got {name!r}: {problem}.")


@message
def _signature(setting: str) -> str:
    if setting == "training_recipe":
        return "recipe(total_steps, scale) → optimizer, or a pipeline.models.training_recipes.Recipe"
    return "build(input_shape, num_labels) → keras.Model"


@message
def _shown(argument: object) -> str:
    return f"{argument.dtype} {argument.shape}" if isinstance(argument, np.ndarray) else repr(argument)


@message
def _in_brief(error: Exception) -> str:
    """An error in one line, with the last place in user code that it passed."""
    ours, files = Path(__file__).resolve().parents[1], traceback.extract_tb(error.__traceback__)
    places = [
        f"{frame.filename}, line {frame.lineno}"
        for frame, path in ((frame, Path(frame.filename)) for frame in files)
        if path.is_file() and is_local(path) and not path.resolve().is_relative_to(ours)
    ]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400].rstrip('.')}"
    return f"{text} ({places[-1]})" if places else text
