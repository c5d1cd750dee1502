"""The compiled model: seeded weights, adaptation to the data, weights of another run, frozen layers and the optimizer.

Rules choose what the settings leave open. Timing the choices on the machine never found anything faster (docs/LOG.md).
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

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError, message
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.models.build import build_network, find_adapter, find_recipe
from pipeline.models.model import ADAPTED_EXAMPLES, PROBABILITIES, Crossentropy, assign, named_layers, named_variables
from pipeline.models.muon import KernelMuon, last_matrices
from pipeline.models.training_recipes import Recipe, make_optimizer
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Stream
from pipeline.runs.initial_weights import InitialWeights, digest_of
from pipeline.settings.training import OF_THE_RECIPE, TrainSettings

# Large enough to hide the cost of a call, and small enough for an answer to Ctrl-C within a second.
STEPS_PER_EXECUTION = 32
_MOST_NAMED = 20

_logger = logging.getLogger(__name__)


def compiled_model(
    manifest: Mapping,
    settings: TrainSettings,
    placement: Placement,
    steps: int,
    *,
    outputs: str = PROBABILITIES,
    labels_mixed: bool = False,
    prepare: Callable[[keras.Model], None] = lambda model: None,
) -> keras.Model:
    """A new model in the scope of the placement, compiled for ``steps`` steps per epoch.

    ``outputs`` of the model are "logits" or "probabilities"; ``labels_mixed``: as of ``mixed_loss``; ``prepare`` is
    called with the seeded model before it is compiled. SettingsError: it does not take the examples of the records.
    """
    precision = choose_precision(settings.precision, placement)
    jit_compile = choose_jit_compile(settings.jit_compile, placement)
    training_recipe, problem = find_recipe(settings.training_recipe), problem_of_records(manifest)
    loss = problem.loss(outputs, recipe_overrides(settings).get("label_smoothing", training_recipe.label_smoothing))
    # Outside the scope, because it clears the distribution of JAX too.
    keras.utils.clear_session()
    placement.runtime.set_matmul_precision(precision)
    with placement.scope():
        model = seeded_network(manifest, settings, precision)
        prepare(model)
        if placement.effective_device == "cpu" and not jit_compile:
            # JAX trains without TensorFlow being installed.
            from pipeline.models.cpu_kernels import quicken

            quicken(model)
        model.compile(
            optimizer=_optimizer(model, training_recipe, settings, total_steps=steps * settings.epochs),
            loss=mixed_loss(loss) if labels_mixed else loss,
            metrics=[mixed_accuracy()] if labels_mixed else problem.metrics(),
            jit_compile=jit_compile,
            # Keras runs several steps in one execution on one replica only (keras-team/keras issue 19246).
            steps_per_execution=min(STEPS_PER_EXECUTION, steps) if placement.num_replicas == 1 else 1,
        )
    return model


def seeded_network(manifest: Mapping, settings: TrainSettings, precision: str) -> keras.Model:
    """A new model with seeded weights, the first one of Keras's session. SettingsError: it does not fit the records."""
    keras.utils.set_random_seed(settings.seed)
    return build_network(problem_of_records(manifest).task(manifest), settings.model, precision)


def recipe_overrides(settings: TrainSettings) -> dict[str, float]:
    """The settings that override the recipe's learning rate, weight decay and label smoothing."""
    given = {name: getattr(settings, name) for name in ("learning_rate", "weight_decay", "label_smoothing")}
    return {name: value for name, value in given.items() if value != OF_THE_RECIPE}


def _optimizer(
    model: keras.Model, training_recipe: Recipe, settings: TrainSettings, *, total_steps: int
) -> keras.Optimizer:
    overrides = recipe_overrides(settings)
    optimizer = make_optimizer(
        training_recipe,
        total_steps=total_steps,
        global_batch_size=settings.global_batch_size,
        scale_learning_rate=settings.scale_learning_rate,
        learning_rate=overrides.get("learning_rate"),
        weight_decay=overrides.get("weight_decay"),
    )
    if isinstance(optimizer, KernelMuon):
        optimizer.exclude_from_muon(last_matrices(model))
    # Without biases and the scales of normalizations.
    if "weight_decay" in overrides and not training_recipe.decays_vectors:
        optimizer.exclude_from_weight_decay([one for one in model.trainable_variables if len(one.shape) < 2])
    # Built before the first step, so that its variables have the same names in a resumed run.
    optimizer.build(model.trainable_variables)
    return optimizer


def mixed_loss(plain: Crossentropy) -> Callable:
    """The loss of labels that may be mixed, float32 (batch, 3): label, other label, share of the first."""

    def loss(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        if not (parts := _parts(labels)):
            return plain(labels, outputs)
        first, second, share = parts
        return share * plain(first, outputs) + (1 - share) * plain(second, outputs)

    loss.of_plain = plain
    return loss


def mixed_accuracy() -> keras.Metric:
    """The accuracy. The label of a mixed example is the one with the greater share."""

    def is_right(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        if parts := _parts(labels):
            first, second, share = parts
            labels = keras.ops.where(share >= 0.5, first, second)
        return keras.metrics.sparse_categorical_accuracy(labels, outputs)

    return keras.metrics.MeanMetricWrapper(is_right, name="accuracy")


def _parts(labels: keras.KerasTensor) -> tuple[keras.KerasTensor, keras.KerasTensor, keras.KerasTensor] | None:
    """The columns of mixed labels. None for plain ones, as in the evaluation."""
    # The import needs TensorFlow, as mixing does.
    from pipeline.augmentation.augment import MIXED_WIDTH

    if len(labels.shape) != 2 or labels.shape[1] != MIXED_WIDTH:
        return None
    return keras.ops.cast(labels[:, 0], "int32"), keras.ops.cast(labels[:, 1], "int32"), labels[:, 2]


def draw_weights(records_folder: Path, settings: TrainSettings, file: Path) -> None:
    """Write a run's seeded weights, for a training on another backend."""
    keras.utils.clear_session()
    save_file(named_weights(seeded_network(read_manifest(records_folder), settings, "float32")), file)


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Layer and variable name → float32 array. The names are the same in a model that was saved and loaded."""
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}


def begin(
    model: keras.Model,
    settings: TrainSettings,
    initial: InitialWeights | None,
    train: Stream,
    *,
    drawn: Path | None = None,
) -> dict[str, Any] | None:
    """Adapt a new model to the train split, assign its initial weights and freeze layers.

    ``drawn`` is a file of ``draw_weights``, which come before all that. Adaptation comes before the weights of another
    run, because its later layers were trained with those. A layer takes weights if all of them exist under its name
    and in its shapes. So the last layers may differ, for example for other labels.

    Returns the fields of ``Beginning`` in the record, or None if there is nothing to do.

    Raises:
        SettingsError: no layer fits, none or all are to be frozen, or user code fails.
    """
    if drawn:
        assign(named_variables(model), load_file(drawn))
    adapted = 0
    if adapter := find_adapter(settings.model):
        examples, _ = next(train.evaluation().unbatch().batch(ADAPTED_EXAMPLES).as_numpy_iterator())
        adapter(model, examples)
        adapted = len(examples)
        _logger.info("the network is adapted to %s examples of train", f"{adapted:,}")
    taken, left = _take(model, settings, initial) if initial else ((), {})
    frozen = _freeze(model, settings.freeze) if settings.freeze else ()
    if not (initial or frozen or adapted):
        return None
    return {"taken": taken, "left": left, "frozen": frozen, "adapted_examples": adapted}


def _take(model: keras.Model, settings: TrainSettings, initial: InitialWeights) -> tuple[tuple[str, ...], dict]:
    """Layers that took their weights, and the others with the reason."""
    file = initial.file
    if digest_of(file, settings.initial_weights) != initial.digest:
        raise SettingsError(
            f"[Train] initial_weights: expected the weights that were there before, {file} has changed. Run again."
        )
    weights = _read(file)
    layers: dict[str, dict[str, keras.Variable]] = {}
    for name, variable in named_variables(model).items():
        layers.setdefault(name.rpartition("/")[0] or name, {})[name] = variable
    left = {layer: reason for layer, variables in layers.items() if (reason := _why_not(variables, weights))}
    taken = tuple(layer for layer in layers if layer not in left)
    if not taken:
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in [*left.items()][:_MOST_NAMED])
        raise SettingsError(
            f"[Train] initial_weights: expected weights of at least one layer of {settings.model} in {file}. {reasons}."
        )
    for layer in taken:
        assign(layers[layer], weights)
    for name, layer in named_layers(model):
        # Preprocessing layers compute with values derived from their weights.
        if name in taken and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    _logger.info("initial weights of %s: %s", file, ", ".join(taken))
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


def _why_not(variables: Mapping[str, keras.Variable], weights: Mapping[str, np.ndarray]) -> str:
    """Why a layer cannot take its weights. An empty string: it can."""
    for name, variable in variables.items():
        if name not in weights:
            return f"no {name} there"
        if tuple(variable.shape) != weights[name].shape:
            return _other_shape(name, tuple(variable.shape), weights[name].shape)
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
