"""Initial: the weights a run starts from, and the layers that keep theirs (training's aid).

What a network takes from the data (``adapted_by``) comes first: a layer that takes initial weights keeps nothing
of it, for the layers after it were trained with those.

A layer takes its weights where all of them are there under its name and in its shapes: a network may differ from the
one that was trained in its last layer, for other labels, or in the layers after those that are kept.
"""

import logging
import re
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import load_file

from pipeline.config.training import TrainSettings
from pipeline.errors import SettingsError
from pipeline.networks.build import adapt_model, takes_from_data
from pipeline.networks.model import ADAPTED_EXAMPLES, named_layers, named_variables
from pipeline.problems.problem import Stream
from pipeline.runs.initial import InitialWeights, digest_of
from pipeline.runs.record import Beginning
from pipeline.training import words

_MOST_NAMED = 20

_logger = logging.getLogger(__name__)


def begin(
    model: keras.Model, settings: TrainSettings, initial: InitialWeights | None, train: Stream
) -> Beginning | None:
    """Adapt a new network to the train split, give it its initial weights and freeze layers; None: it wants none of it.

    Raises:
        SettingsError: no layer fits, none is to be frozen, or all are; a network of the user's own cannot be adapted.
    """
    adapted = _adapt(model, settings.model, train) if takes_from_data(settings.model) else 0
    taken, left = _take(model, settings, initial) if initial else ((), {})
    frozen = _freeze(model, settings.freeze) if settings.freeze else ()
    if not (initial or frozen or adapted):
        return None
    return Beginning(taken=taken, left=left, frozen=frozen, adapted_examples=adapted)


def _adapt(model: keras.Model, name: str, train: Stream) -> int:
    """How many examples it was adapted to."""
    inputs, count = [], 0
    for batch, _ in train.evaluation().as_numpy_iterator():
        inputs.append(batch)
        count += len(batch)
        if count >= ADAPTED_EXAMPLES:
            break
    examples = np.concatenate(inputs)[:ADAPTED_EXAMPLES]
    adapt_model(name, model, examples)
    _logger.info("%s is adapted to %s examples of train", name, f"{len(examples):,}")
    return len(examples)


def _take(
    model: keras.Model, settings: TrainSettings, initial: InitialWeights
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The layers that took their weights, and those that did not with the reason."""
    if digest_of(initial.file, settings.initial_weights) != initial.digest:
        raise _refusal("initial_weights", f"the weights that were there before, {initial.file} has changed. Run again")
    found = _read(initial.file)
    layers: dict[str, dict[str, keras.Variable]] = {}
    for name, variable in named_variables(model).items():
        layers.setdefault(name.rpartition("/")[0] or name, {})[name] = variable
    left = {layer: reason for layer, variables in layers.items() if (reason := _why_not(variables, found))}
    taken = tuple(layer for layer in layers if layer not in left)
    if not taken:
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in [*left.items()][:_MOST_NAMED])
        raise _refusal(
            "initial_weights", f"weights of at least one layer of {settings.model} in {initial.file}. {reasons}"
        )
    for layer in taken:
        for name, variable in layers[layer].items():
            variable.assign(found[name])
    for name, layer in named_layers(model):
        # Keras's layers of preprocessing compute with what they derive from their weights.
        if name in taken and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    _logger.info("initial weights of %s: %s", initial.file, ", ".join(taken))
    for layer, reason in left.items():
        _logger.info("%s keeps its own initial weights: %s", layer, reason)
    return taken, left


def _read(file: Path) -> dict[str, np.ndarray]:
    """Name → weights, as ``named_variables`` names them."""
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        model = keras.saving.load_model(file, safe_mode=True, compile=False)
    # Whatever a file from anywhere makes them raise.
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        raise _refusal("initial_weights", f"a file that can be read, got {file}: {text}") from error
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}


def _why_not(variables: dict[str, keras.Variable], found: dict[str, np.ndarray]) -> str:
    for name, variable in variables.items():
        if name not in found:
            return words.not_in_file(name)
        if tuple(variable.shape) != found[name].shape:
            return words.other_shape(name, tuple(variable.shape), found[name].shape)
    return ""


def _freeze(model: keras.Model, pattern: str) -> tuple[str, ...]:
    """The layers with weights whose name, or that of the model they lie in, is all of what the pattern means."""
    layers = {name: layer for name, layer in named_layers(model) if layer.weights}
    frozen = tuple(name for name in layers if any(re.fullmatch(pattern, part) for part in _names_of(name)))
    if not frozen:
        names = ", ".join([*layers][:_MOST_NAMED])
        raise _refusal("freeze", f"a regular expression of layers' names, none is {pattern!r} as a whole: {names}")
    for name in frozen:
        layers[name].trainable = False
    if not model.trainable_variables:
        raise _refusal("freeze", f"a regular expression that leaves a layer to train, {pattern!r} leaves none")
    _logger.info("frozen: %s", ", ".join(frozen))
    return frozen


def _names_of(name: str) -> list[str]:
    """From "a/b/c": "a", "a/b", "a/b/c"."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _refusal(setting: str, expected: str) -> SettingsError:
    return SettingsError(words.refusal(setting, expected))
