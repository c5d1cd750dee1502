"""Finds and builds models and training recipes by name, or by ``module:function`` for user code.

A model of user code is tested with random examples before it is trained.
"""

import importlib
import logging
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import SettingsError, message
from pipeline.models.model import LOGITS, PROBABILITIES, configure_keras, named_layers
from pipeline.models.training_recipes import Recipe
from pipeline.optional_packages import is_local
from pipeline.records.features import DISTRIBUTION, LABELS, VALUES, Task
from pipeline.settings.training import MODELS, RECIPES

# Three pooling layers reduce this side to one pixel.
MIN_IMAGE_SIDE = 8
_POLICIES = {"float32": "float32", "tf32": "float32", "bfloat16": "mixed_bfloat16"}

_DEPTHWISE = (
    *(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D),
    *(keras.layers.SeparableConv1D, keras.layers.SeparableConv2D),
)
_EXAMINED_EXAMPLES = 4
_REASON_LENGTH = 130
# Tolerance for sums of probabilities in bfloat16, which has three digits.
_TOLERANCE = 0.02

_logger = logging.getLogger(__name__)


def find_recipe(name: str) -> Recipe:
    """Load a training recipe. SettingsError: user code cannot be imported or returns no optimizer."""
    loaded = load_function("training_recipe", RECIPES.get(name, name))
    if name in RECIPES.builtin:
        return loaded
    training_recipe = loaded if isinstance(loaded, Recipe) else Recipe(loaded)

    def make_checked(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        optimizer = _call("training_recipe", name, training_recipe.optimizer, total_steps, scale)
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise _refusal(name, f"it returned {optimizer!r:.100}, not a Keras optimizer", "training_recipe")
        return optimizer

    return replace(training_recipe, optimizer=make_checked)


def build_for_task(task: Task, name: str, precision: str) -> keras.Model:
    """Call ``build_model`` for the examples of a task. Variables are float32 in every ``precision``."""
    configure_keras()
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        is_single = task.meaning == DISTRIBUTION
        model = build_model(name, task.input_shape, task.num_labels, is_single=is_single)
        return model if is_single else _with_outputs(model, task, name)
    finally:
        keras.config.set_dtype_policy(policy)


def build_model(name: str, input_shape: tuple[int, ...], num_labels: int, *, is_single: bool = True) -> keras.Model:
    """Build a model. Inputs are uint8 images (batch, height, width, channels) or tokens (batch, length).

    ``is_single`` is whether an example has one label. A model with one output for two labels then gets one for each.
    """
    if MODELS.is_ours(name) and len(input_shape) == 3 and min(input_shape[:2]) < MIN_IMAGE_SIDE:
        raise SettingsError(
            f"[Train] model: {name} expects images of at least {MIN_IMAGE_SIDE} × {MIN_IMAGE_SIDE} pixels, got "
            f"{input_shape}. Choose another dataset or model."
        )
    model = _call("model", name, load_builder(name), input_shape, num_labels)
    if not isinstance(model, keras.Model):
        raise _refusal(name, f"it returned {model!r:.100}, not a keras.Model")
    outputs = None if model.built else _outputs(name, model, np.zeros((1, *input_shape), np.uint8))
    shape = model.output_shape if outputs is None else outputs.shape
    if not is_single or num_labels != 2 or shape[-1:] != (1,):
        return model
    inputs = keras.Input(input_shape, dtype="uint8")
    second = model(inputs)
    # A softmax of -x/2 and x/2 is the sigmoid of x.
    scales = ((-1, 1), (1, 0)) if _activation(model) == "sigmoid" else ((-0.5, 0), (0.5, 0))
    both = [keras.layers.Rescaling(scale, offset, dtype="float32")(second) for scale, offset in scales]
    return keras.Model(inputs, keras.layers.Concatenate(dtype="float32")(both), name=model.name)


def _with_outputs(model: keras.Model, task: Task, name: str) -> keras.Model:
    """A model with a probability per label, or with values in their units, from a model for one label."""
    if MODELS.is_ours(name):
        last = model.layers[-1]
        if getattr(last, "activation", None) is keras.activations.softmax:
            logits = type(last).from_config({**last.get_config(), "activation": None, "name": "logits"})
            model = keras.models.clone_model(model, clone_function=lambda layer: logits if layer is last else layer)
        inputs, outputs = model.inputs[0], model.outputs[0]
    else:
        expected = ("sigmoid", "linear") if task.meaning == LABELS else ("linear",)
        if (activation := _activation(model)) not in ("", *expected):
            kind = "several labels" if task.meaning == LABELS else "numbers"
            raise _refusal(
                name, f"{kind} need a last layer with the activation {' or '.join(expected)}, not {activation}"
            )
        inputs = keras.Input(task.input_shape, dtype="uint8")
        outputs = model(inputs)
    if task.meaning == LABELS:
        if _activation(model) == "sigmoid":
            return model
        sigmoid = keras.layers.Activation("sigmoid", dtype="float32", name="probabilities")
        return keras.Model(inputs, sigmoid(outputs), name=model.name)
    if not task.deviations:
        return model
    # A new model then predicts about the mean of the train split, whatever the units.
    scale = keras.layers.Rescaling([*task.deviations], [*task.means], dtype="float32", name="values")
    return keras.Model(inputs, scale(outputs), name=model.name)


def _activation(model: keras.Model) -> str:
    """Name of the activation of the last layer. "" if it is unknown."""
    activation = getattr(model.layers[-1], "activation", None) if model.layers else None
    return getattr(activation, "__name__", "")


def load_builder(name: str) -> Callable:
    """Import the builder of a model. Layers and models in the package of user code are registered with Keras."""
    path = MODELS.get(name, name)
    builder = load_function("model", path)
    if not MODELS.is_ours(name):
        package = path.partition(":")[0].partition(".")[0]
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == package]
        for kind in {value for module in modules for value in vars(module).values() if isinstance(value, type)}:
            # Keras gives a class that is not registered its own name.
            is_new = keras.saving.get_registered_name(kind) == kind.__name__
            if issubclass(kind, keras.layers.Layer) and kind.__module__.partition(".")[0] == package and is_new:
                keras.saving.register_keras_serializable(kind.__module__)(kind)
    return builder


def kind_of_outputs(task: Task, name: str, precision: str) -> str:
    """Kind of a model's outputs, "logits", "probabilities" or "values".

    A model of user code is built, and tested with a few random examples.
    """
    kind = {LABELS: PROBABILITIES, VALUES: VALUES}.get(task.meaning)
    if MODELS.is_ours(name):
        return kind or getattr(load_builder(name), "outputs", PROBABILITIES)
    model = build_for_task(task, name, precision)
    inputs = np.random.default_rng(0).integers(0, task.inputs, (_EXAMINED_EXAMPLES, *task.input_shape), np.uint8)
    outputs = _outputs(name, model, inputs)
    expected = (_EXAMINED_EXAMPLES, *task.output_shape)
    if outputs.shape != expected:
        raise _refusal(name, f"its outputs have the shape {outputs.shape} instead of {expected}")
    if task.label_shape == task.input_shape:
        _check_order(name, model, inputs, outputs, task)
    _check_saving(name, model, inputs, task, precision)
    _warn_of_unseeded(name, model, inputs)
    if kind is None:
        # This check precedes the sums, because sums of a few examples may be 1 by chance.
        if _activation(model) == "sigmoid":
            raise _refusal(name, "a sigmoid returns neither logits nor probabilities. Use softmax or no activation")
        are_probabilities = (outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=_TOLERANCE)
        kind = PROBABILITIES if are_probabilities else LOGITS
    _logger.info("Model %s returns %s.", name, kind)
    return kind


@cache
def has_depthwise_convolutions(name: str, task: Task) -> bool:
    """Whether a model has layers that convolve channels or groups of channels alone."""
    model = build_for_task(task, name, "float32")
    layers = [layer for _, layer in named_layers(model)]
    return any(isinstance(layer, _DEPTHWISE) or getattr(layer, "groups", 1) > 1 for layer in layers)


def find_adapter(name: str) -> Callable[[keras.Model, np.ndarray], None] | None:
    """Function that adapts a model to examples of the train split, or None. See ``adapted_by``."""
    adapt = getattr(load_builder(name), "adapt", None)
    return adapt and (lambda model, inputs: _call("model", name, adapt, model, inputs))


def save_copy(model: keras.Model, path: Path, input_shape: tuple[int, ...]) -> keras.Model:
    """Save a model without its optimizer, with the same names, and load it. An exception leaves no file."""
    try:
        copy = type(model).from_config(model.get_config())
        if not copy.built:
            copy(np.zeros((1, *input_shape), np.uint8))
        copy.set_weights(model.get_weights())
        copy.save(path)
        return keras.saving.load_model(path, safe_mode=True)
    except Exception:
        path.unlink(missing_ok=True)
        raise


def check_training(name: str, model: keras.Model, input_shape: tuple[int, ...], check_step: Callable) -> None:
    """Refuse a model of user code whose training step the backend cannot compile. See ``Runtime.check_step``."""
    if MODELS.is_ours(name):
        return
    try:
        check_step(model, input_shape)
    except Exception as error:
        backend = keras.backend.backend()
        raise _refusal(
            name,
            f"{backend} cannot compile a training step: {_summarize(error)}. Replace the layer, pass a "
            "keras.random.SeedGenerator to random operations, or set --Train-backend tensorflow",
        ) from error


def _outputs(name: str, model: keras.Model, inputs: np.ndarray, *, training: bool = False) -> np.ndarray:
    # Some layers assume training unless they are told.
    outputs = _call("model", name, partial(model, training=training), inputs)
    if isinstance(outputs, dict | list | tuple):
        raise _refusal(name, f"the model has {len(outputs)} outputs instead of 1")
    return keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))


def _check_order(name: str, model: keras.Model, inputs: np.ndarray, outputs: np.ndarray, task: Task) -> None:
    """Refuse a model whose outputs depend on the tokens that they predict."""
    length = inputs.shape[1]
    # A model that looks ahead in blocks does not look across every cut, so several cuts are tested.
    for cut in sorted({1, length // 3, length // 2, length // 2 + 1, length - 1} - {0, length}):
        changed = inputs.copy()
        changed[:, cut:] = (changed[:, cut:] + 1) % task.inputs
        if not np.allclose(_outputs(name, model, changed)[:, :cut], outputs[:, :cut], rtol=0.01, atol=0.01):
            raise _refusal(
                name,
                "its outputs depend on later characters, which they predict. Remove Bidirectional, and set "
                'padding="causal" in convolutions and use_causal_mask=True in attention',
            )


def _warn_of_unseeded(name: str, model: keras.Model, inputs: np.ndarray) -> None:
    """Warn of random operations whose state is in no variable, so that a checkpoint does not restore it."""
    variables, outputs = model.non_trainable_variables, []
    values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]
    for _ in range(2):
        outputs.append(_outputs(name, model, inputs, training=True))
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    if not np.allclose(*outputs, rtol=1e-3, atol=1e-4, equal_nan=True):
        _logger.warning(
            "A run of %s that is resumed gets other weights, because its random operations have no state in the model. "
            "Pass a keras.random.SeedGenerator to them.",
            name,
        )


def _check_saving(name: str, model: keras.Model, inputs: np.ndarray, task: Task, precision: str) -> None:
    """Refuse a model that neither Keras nor its builder restores from its weights."""
    outputs = _outputs(name, model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        try:
            restored = save_copy(model, Path(folder) / "model.keras", task.input_shape)
        except Exception as error:
            if not is_subclassed(model):
                raise _refusal(
                    name,
                    f"the model cannot be saved and loaded: {_summarize(error)}. Return the arguments of your layers "
                    "in get_config, decorate functions with @keras.saving.register_keras_serializable(), and use no "
                    "Lambda",
                ) from error
            # The rest of Keras's message is an example.
            reason = _summarize(error)[:_REASON_LENGTH]
            _logger.info("Only the code of %s can build the model, so its run has no model file. %s …", name, reason)
            restored = build_for_task(task, name, precision)
            try:
                restored.set_weights(model.get_weights())
            except ValueError as other:
                raise _refusal(name, f"it builds models with different weights: {_summarize(other)}") from other
        restored_outputs = _outputs(name, restored, inputs)
    if not np.allclose(restored_outputs, outputs, rtol=0.01, atol=0.01, equal_nan=True):
        raise _refusal(name, "the model returns other outputs after saving and loading")


def is_subclassed(model: keras.Model) -> bool:
    """Whether a model, or a model in it, is of a class of user code."""
    if not type(model).__module__.startswith("keras."):
        return True
    return any(isinstance(layer, keras.Model) and is_subclassed(layer) for layer in model.layers)


def load_function(setting: str, name: str) -> Any:
    """Import ``module:function``. SettingsError: the module cannot be imported or lacks the name."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    # User code may raise any exception.
    except Exception as error:
        raise _refusal(name, f"importing it raised {_summarize(error)}", setting) from error


def _call(setting: str, name: str, function: Callable, *arguments: Any) -> Any:
    """Call a function of user code. SettingsError: it raised an exception."""
    try:
        return function(*arguments)
    except SettingsError:
        raise
    except Exception as error:
        values = (f"{each.dtype} {each.shape}" if isinstance(each, np.ndarray) else repr(each) for each in arguments)
        called = f"{getattr(function, '__name__', name)}({', '.join(values)})"
        raise _refusal(name, f"{called} raised {_summarize(error)}", setting) from error


def _refusal(name: str, problem: str, setting: str = "model") -> SettingsError:
    is_recipe = setting == "training_recipe"
    return SettingsError(
        f"[Train] {setting}: expected "
        + ("recipe(total_steps, scale) → optimizer, or a pipeline.models.training_recipes.Recipe" if is_recipe else "")
        + ("build(input_shape, num_labels) → keras.Model" if not is_recipe else "")
        + f", got {name!r}. Problem: {problem}."
    )


@message
def _summarize(error: Exception) -> str:
    """Summarize an exception in one line, with the innermost line of user code."""
    project, lines = Path(__file__).resolve().parents[1], [""]
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_file() and is_local(path) and not path.resolve().is_relative_to(project):
            lines.append(f" ({path}, line {frame.lineno})")
    # Keras formats errors for terminals.
    plain = re.sub(r"\x1b\[\d*m", "", str(error))
    return f"{type(error).__name__}: {' '.join(plain.split())[:400].rstrip('.')}{lines[-1]}"
