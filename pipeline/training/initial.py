"""Initial weights of a model: seeded weights, adaptation to the data, weights of another run, frozen layers.

Adaptation comes before the weights of another run, because the later layers were trained with those. A layer takes
weights if all of them exist under its name and in its shapes. So the last layers may differ, for example for other
labels.
"""

import logging
import re
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file, save_file

from pipeline.artefacts.manifest import read_manifest
from pipeline.config.training import TrainSettings
from pipeline.errors import SettingsError, message
from pipeline.networks.build import build_network, find_adapter
from pipeline.networks.model import ADAPTED_EXAMPLES, named_layers, named_variables
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Stream
from pipeline.runs.initial import InitialWeights, digest_of

_MOST_NAMED = 20

_logger = logging.getLogger(__name__)


def seeded_network(manifest: Mapping, settings: TrainSettings, precision: str) -> keras.Model:
    """A new model with seeded weights, the first one of Keras's session. SettingsError: it does not fit the records."""
    keras.utils.set_random_seed(settings.seed)
    return build_network(problem_of_records(manifest).task(manifest), settings.model, precision)


def draw_weights(records_folder: Path, settings: TrainSettings, file: Path) -> None:
    """Write a run's seeded weights, for a training on another backend."""
    keras.utils.clear_session()
    save_file(named_weights(seeded_network(read_manifest(records_folder), settings, "float32")), file)


def assign_drawn(model: keras.Model, file: Path) -> None:
    """Assign the weights that ``draw_weights`` wrote."""
    weights = load_file(file)
    for name, variable in named_variables(model).items():
        variable.assign(weights[name])


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Layer and variable name → float32 array. The names are the same in a model that was saved and loaded."""
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}


def begin(
    model: keras.Model, settings: TrainSettings, initial: InitialWeights | None, train: Stream
) -> dict[str, Any] | None:
    """Adapt a new model to the train split, assign its initial weights and freeze layers.

    Returns the fields of ``Beginning`` in the record, or None if there is nothing to do.

    Raises:
        SettingsError: no layer fits, none or all are to be frozen, or user code fails.
    """
    adapter = find_adapter(settings.model)
    adapted = _adapt(model, adapter, train) if adapter else 0
    taken, left = _take(model, settings, initial) if initial else ((), {})
    frozen = _freeze(model, settings.freeze) if settings.freeze else ()
    if not (initial or frozen or adapted):
        return None
    return {"taken": taken, "left": left, "frozen": frozen, "adapted_examples": adapted}


def _adapt(model: keras.Model, adapter: Callable[[keras.Model, np.ndarray], None], train: Stream) -> int:
    """Adapt the model and return the number of examples."""
    examples, _ = next(train.evaluation().unbatch().batch(ADAPTED_EXAMPLES).as_numpy_iterator())
    adapter(model, examples)
    _logger.info("the network is adapted to %s examples of train", f"{len(examples):,}")
    return len(examples)


def _take(
    model: keras.Model, settings: TrainSettings, initial: InitialWeights
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Layers that took their weights, and the others with the reason."""
    if digest_of(initial.file, settings.initial_weights) != initial.digest:
        raise SettingsError(
            f"[Train] initial_weights: expected the weights that were there before, {initial.file} has changed. Run "
            "again."
        )
    found = _read(initial.file)
    layers: dict[str, dict[str, keras.Variable]] = {}
    for name, variable in named_variables(model).items():
        layers.setdefault(name.rpartition("/")[0] or name, {})[name] = variable
    left = {layer: reason for layer, variables in layers.items() if (reason := _why_not(variables, found))}
    taken = tuple(layer for layer in layers if layer not in left)
    if not taken:
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in [*left.items()][:_MOST_NAMED])
        raise SettingsError(
            f"[Train] initial_weights: expected weights of at least one layer of {settings.model} in {initial.file}. "
            f"{reasons}."
        )
    for layer in taken:
        for name, variable in layers[layer].items():
            variable.assign(found[name])
    for name, layer in named_layers(model):
        # Preprocessing layers compute with values derived from their weights.
        if name in taken and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    _logger.info("initial weights of %s: %s", initial.file, ", ".join(taken))
    for layer, reason in left.items():
        _logger.info("%s keeps its own initial weights: %s", layer, reason)
    return taken, left


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return named_weights(keras.saving.load_model(file, safe_mode=True, compile=False))
    # A file from anywhere may raise anything.
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        raise SettingsError(
            f"[Train] initial_weights: expected a file that can be read, got {file}: {text}."
        ) from error


def _why_not(variables: Mapping[str, keras.Variable], found: Mapping[str, np.ndarray]) -> str:
    """Why a layer cannot take its weights. An empty string: it can."""
    for name, variable in variables.items():
        if name not in found:
            return f"no {name} there"
        if tuple(variable.shape) != found[name].shape:
            return _other_shape(name, tuple(variable.shape), found[name].shape)
    return ""


def _freeze(model: keras.Model, pattern: str) -> tuple[str, ...]:
    """Freeze the layers with weights whose name, or the name of their model, matches the whole pattern."""
    layers = {name: layer for name, layer in named_layers(model) if layer.weights}
    # Of "a/b/c" the names are "a", "a/b" and "a/b/c".
    parts = {name: accumulate(name.split("/"), "{}/{}".format) for name in layers}
    frozen = tuple(name for name in layers if any(re.fullmatch(pattern, part) for part in parts[name]))
    if not frozen:
        names = ", ".join([*layers][:_MOST_NAMED])
        raise SettingsError(
            f"[Train] freeze: expected a regular expression of layers' names, none is {pattern!r} as a whole: {names}."
        )
    for name in frozen:
        layers[name].trainable = False
    if not model.trainable_variables:
        raise SettingsError(
            f"[Train] freeze: expected a regular expression that leaves a layer to train, {pattern!r} leaves none."
        )
    _logger.info("frozen: %s", ", ".join(frozen))
    return frozen


@message
def _other_shape(name: str, shape: tuple[int, ...], found: tuple[int, ...]) -> str:
    return f"{name} has the shape {shape}, there {found}"
