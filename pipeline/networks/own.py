"""Builders of models and recipes as ``module:function``. User code is checked before the first step (``examined``)."""

import importlib
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import SettingsError, message
from pipeline.installed import is_local
from pipeline.networks.model import LOGITS, PROBABILITIES
from pipeline.networks.recipes import Recipe
from pipeline.problems.problem import Task

_EXAMINED_EXAMPLES = 4
# Sums of probabilities in bfloat16, which have three digits.
_TOLERANCE = 0.02


def load_function(setting: str, name: str) -> Any:
    """Import ``module:function``.

    Raises:
        SettingsError: the module cannot be imported, or has no such name.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    # User code may raise anything.
    except Exception as error:
        raise _refusal(name, f"importing it raised {_brief(error)}", setting) from error


def load_recipe(name: str) -> Recipe:
    """The recipe that ``module:function`` names.

    Raises:
        SettingsError: it cannot be imported. Its optimizer raises one if it makes none.
    """
    found = load_function("recipe", name)
    recipe = found if isinstance(found, Recipe) else Recipe(found)

    def optimizer(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        made = _call("recipe", name, recipe.optimizer, total_steps, scale)
        if not isinstance(made, keras.optimizers.Optimizer):
            raise _refusal(name, f"it made {made!r:.100}, no Keras optimizer", "recipe")
        return made

    return replace(recipe, optimizer=optimizer)


def build(name: str, input_shape: tuple[int, ...], num_labels: int) -> keras.Model:
    """The model that ``build(input_shape, num_labels)`` returns, built.

    Raises:
        SettingsError: it returns no Keras model, or one that does not take such examples.
    """
    model = _call("model", name, load_function("model", name), input_shape, num_labels)
    if not isinstance(model, keras.Model):
        raise _refusal(name, f"it returned {model!r:.100}, no keras.Model")
    if not model.built:
        _outputs(name, model, np.zeros((1, *input_shape), np.uint8))
    return model


def load_adapter(name: str) -> Callable[[keras.Model, np.ndarray], None] | None:
    """The function that ``adapted_by`` gave the builder, or None."""
    adapt = getattr(load_function("model", name), "adapt", None)
    return adapt and (lambda model, inputs: _call("model", name, adapt, model, inputs))


def untrained_copy(model: keras.Model, input_shape: tuple[int, ...]) -> keras.Model:
    """A copy from the model's configuration, not compiled, with the same layer names."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy(np.zeros((1, *input_shape), np.uint8))
    return copy


def examined(name: str, model: keras.Model, task: Task) -> str:
    """Whether a user's model gives "logits" or "probabilities", found with a few random examples.

    Raises:
        SettingsError: the outputs do not fit the task, or the model cannot be saved and loaded.
    """
    inputs = np.random.default_rng(0).integers(0, task.inputs, (_EXAMINED_EXAMPLES, *task.input_shape), np.uint8)
    outputs = _outputs(name, model, inputs)
    expected = (_EXAMINED_EXAMPLES, *task.output_shape)
    if outputs.shape != expected:
        raise _refusal(name, f"its outputs should have the shape {expected}; they have {outputs.shape}")
    if task.label_shape:
        _check_order(name, model, inputs, outputs, task)
    _check_saving(name, model, inputs, outputs)
    # Before the sums, because those of a few examples may be 1 by chance.
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    if activation is keras.activations.sigmoid:
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
                f"its network cannot be saved and loaded: {_brief(error)}. Classes and functions of your own need "
                "@keras.saving.register_keras_serializable(), and no Lambda",
            ) from error
    if not np.allclose(found, outputs, rtol=0.01, atol=0.01, equal_nan=True):
        raise _refusal(name, "its network gives other outputs once it is saved and loaded")


def _call(setting: str, name: str, function: Callable, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except SettingsError:
        raise
    # User code may raise anything.
    except Exception as error:
        given = [_shown(argument) for argument in arguments]
        called = getattr(function, "__name__", name)
        raise _refusal(name, f"{called}({', '.join(given)}) raised {_brief(error)}", setting) from error


def _refusal(name: str, problem: str, setting: str = "model") -> SettingsError:
    return SettingsError(f"[Train] {setting}: expected {_signature(setting)}, got {name!r}: {problem}.")


@message
def _signature(setting: str) -> str:
    if setting == "recipe":
        return "recipe(total_steps, scale) → optimizer, or a pipeline.networks.recipes.Recipe"
    return "build(input_shape, num_labels) → keras.Model"


@message
def _shown(argument: object) -> str:
    return f"{argument.dtype} {argument.shape}" if isinstance(argument, np.ndarray) else repr(argument)


@message
def _brief(error: Exception) -> str:
    """An error in one line, with the last place in user code that it passed."""
    ours = Path(__file__).resolve().parents[1]
    places = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_file()
        and is_local(Path(frame.filename))
        and not Path(frame.filename).resolve().is_relative_to(ours)
    ]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:400].rstrip('.')}"
    return f"{text} ({places[-1][0]}, line {places[-1][1]})" if places else text
