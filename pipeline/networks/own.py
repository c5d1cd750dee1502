"""Own networks and recipes: functions that the settings name instead of one of ours (… → stream → training → …).

A function of one's own is asked for more than ours need be, for nobody has tested it here: what it makes is looked at
before the first step (``examined``), and each thing that is wrong with it is said in a sentence that names the setting.
"""

import importlib
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import SettingsError
from pipeline.installed import is_local
from pipeline.networks import words
from pipeline.networks.outputs import LOGITS, PROBABILITIES
from pipeline.networks.recipes import Recipe
from pipeline.problems.problem import Task

_LOOKED_AT = 4
# Of probabilities in bfloat16, which have three digits.
_TOLERANCE = 0.02


def is_own(name: str) -> bool:
    """Whether a name is that of a function of one's own: ``module:function``."""
    return ":" in name


def load_function(setting: str, name: str) -> Any:
    """What ``module:function`` names, imported.

    Raises:
        SettingsError: the module cannot be imported, or has no such name.
    """
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    # Whatever code that is not ours raises.
    except Exception as error:
        raise _refusal(setting, name, f"importing it raised {_brief(error)}") from error


def load_recipe(name: str) -> Recipe:
    """The recipe that ``module:function`` names.

    Raises:
        SettingsError: it is none, or makes no optimizer.
    """
    found = load_function("recipe", name)
    recipe = found if isinstance(found, Recipe) else Recipe(found)
    if not callable(recipe.optimizer):
        raise _refusal("recipe", name, f"it is {words.kind(recipe.optimizer)}")

    def optimizer(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        made = _called("recipe", name, recipe.optimizer, total_steps, scale)
        if not isinstance(made, keras.optimizers.Optimizer):
            raise _refusal("recipe", name, f"it made {words.kind(made)}, no Keras optimizer")
        return made

    return replace(recipe, optimizer=optimizer)


def build_own(name: str, input_shape: tuple[int, ...], num_labels: int) -> keras.Model:
    """What ``build(image_shape, num_labels)`` returns, with its weights made.

    Raises:
        SettingsError: it returns no Keras model, or one that does not take such examples.
    """
    build = load_function("model", name)
    if not callable(build):
        raise _refusal("model", name, f"it is {words.kind(build)}")
    model = _called("model", name, build, input_shape, num_labels)
    if not isinstance(model, keras.Model):
        raise _refusal("model", name, f"it returned {words.kind(model)}, no keras.Model")
    if not model.built:
        _outputs(name, model, np.zeros((1, *input_shape), np.uint8))
    return model


def adapt_own(name: str, adapt: Callable, model: keras.Model, inputs: np.ndarray) -> None:
    """Call the ``adapt(model, inputs)`` of a network's function.

    Raises:
        SettingsError: it is no function, or raised an error.
    """
    if not callable(adapt):
        raise _refusal("model", name, f"its attribute adapt is {words.kind(adapt)}")
    call = f"adapt(model, {words.examples_like(str(inputs.dtype), inputs.shape)})"
    _called("model", name, adapt, model, inputs, call=call)


def untrained_copy(model: keras.Model, input_shape: tuple[int, ...]) -> keras.Model:
    """The same network by its own description, not compiled, its layers under the names they have."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy(np.zeros((1, *input_shape), np.uint8))
    return copy


def examined(name: str, model: keras.Model, task: Task) -> str:
    """What a network of one's own gives, "logits" or "probabilities", as its outputs for a few examples tell.

    Raises:
        SettingsError: its outputs are none of the task's labels, or neither; it cannot be saved and loaded.
    """
    inputs = np.random.default_rng(0).integers(0, task.inputs, (_LOOKED_AT, *task.input_shape), np.uint8)
    outputs = _outputs(name, model, inputs, task.examples)
    expected = (_LOOKED_AT, *task.output_shape)
    if outputs.shape != expected:
        raise _refusal("model", name, words.wrong_shape(expected, outputs.shape, task.examples))
    if task.label_shape:
        _check_order(name, model, inputs, outputs, task)
    _check_saving(name, model, inputs, outputs)
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    # First: of a few examples they may add up to 1 by chance.
    if getattr(activation, "__name__", "") == "sigmoid":
        raise _refusal(
            "model",
            name,
            "its outputs are neither logits nor probabilities that add up to 1: its last layer's activation is "
            "sigmoid. Make it softmax, or leave it out",
        )
    if (outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=_TOLERANCE):
        return PROBABILITIES
    return LOGITS


def _outputs(name: str, model: keras.Model, inputs: np.ndarray, examples: str = "examples") -> np.ndarray:
    call = words.network_on(str(inputs.dtype), inputs.shape, examples)
    found = _called("model", name, lambda batch: model(batch, training=False), inputs, call=call)
    if isinstance(found, dict | list | tuple):
        raise _refusal("model", name, f"its network has {len(found)} outputs")
    return keras.ops.convert_to_numpy(keras.ops.cast(found, "float32"))


def _check_order(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray, task: Task) -> None:
    """That no output depends on what comes after its place, which it is to predict."""
    length = inputs.shape[1]
    # More than one: what looks ahead in blocks does not look across each place.
    for cut in sorted({1, length // 3, length // 2, length // 2 + 1, length - 1} - {0, length}):
        other = inputs.copy()
        other[:, cut:] = (other[:, cut:] + 1) % task.inputs
        if not np.allclose(_outputs(name, model, other)[:, :cut], outputs[:, :cut], rtol=0.01, atol=0.01):
            raise _refusal("model", name, words.SEES_WHAT_COMES)


def _check_saving(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """That the network can be used where this project is not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        try:
            model.save(path)
            loaded = keras.saving.load_model(path, safe_mode=True)
            found = keras.ops.convert_to_numpy(keras.ops.cast(loaded(inputs, training=False), "float32"))
        except Exception as error:
            raise _refusal(
                "model", name, f"its network cannot be saved and loaded: {_brief(error)}. {words.REGISTER}"
            ) from error
    if not np.allclose(found, outputs, rtol=0.01, atol=0.01, equal_nan=True):
        raise _refusal("model", name, "its network gives other outputs once it is saved and loaded")


def _called(setting: str, name: str, function: Callable, *arguments: Any, call: str = "") -> Any:
    try:
        return function(*arguments)
    except SettingsError:
        raise
    except Exception as error:
        call = call or f"{name.partition(':')[2]}({', '.join(map(repr, arguments))})"
        raise _refusal(setting, name, words.raised(call, _brief(error))) from error


def _refusal(setting: str, name: str, problem: str) -> SettingsError:
    return SettingsError(words.refusal(setting, name, problem))


def _brief(error: Exception) -> str:
    """An error in one line, with the last place in the user's code that it passed."""
    ours = Path(__file__).resolve().parents[1]
    places = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_file()
        and is_local(Path(frame.filename))
        and not Path(frame.filename).resolve().is_relative_to(ours)
    ]
    return words.error_at(error, places[-1] if places else None)
