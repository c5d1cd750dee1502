"""Builds and compiles the model: seeded or initial weights, adaptation to the data, frozen layers, optimizer.

Fixed rules choose precision and compilation if the settings do not. Benchmarks of the alternatives on the machine
never found a faster choice (docs/LOG.md).
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file, save_file

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError, message, plural
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.models.build import build_for_task, check_training, find_adapter, find_recipe, has_depthwise_convolutions
from pipeline.models.efficientnet_lite import imagenet_weights
from pipeline.models.keras_applications import read_keras_weights
from pipeline.models.model import (
    ADAPTED_EXAMPLES,
    PROBABILITIES,
    Crossentropy,
    assign,
    named_layers,
    named_variables,
    named_weights,
)
from pipeline.models.training_recipes import KernelMuon, Recipe, last_matrices, make_optimizer
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Stream
from pipeline.runs.initial_weights import InitialWeights, digest_of
from pipeline.settings.training import OF_THE_RECIPE, TrainSettings
from pipeline.training.fine_tuning import effective_fine_tune, freeze_backbone

# A compromise between the cost of a call and a response to Ctrl-C within a second.
STEPS_PER_EXECUTION = 32
_MAX_LISTED = 20

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
    """Build and compile a model for ``steps`` steps per epoch, in the scope of the placement.

    ``outputs`` is "logits" or "probabilities". Mixed labels have the format of ``mixed_loss``. ``prepare`` changes the
    seeded model before compilation. SettingsError: the model does not accept the examples of the records.
    """
    training_recipe, problem = find_recipe(settings.training_recipe), problem_of_records(manifest)
    task = problem.task(manifest)
    is_depthwise = partial(has_depthwise_convolutions, settings.model, task)
    precision = choose_precision(settings.precision, placement, is_depthwise)
    jit_compile = choose_jit_compile(settings.jit_compile, placement)
    smoothing = settings.label_smoothing
    loss = problem.loss(outputs, training_recipe.label_smoothing if smoothing == OF_THE_RECIPE else smoothing)
    # This call also clears JAX's distribution, so it precedes the scope.
    keras.utils.clear_session()
    placement.runtime.set_matmul_precision(precision)
    with placement.scope():
        model = seeded_model(manifest, settings, precision)
        prepare(model)
        check_training(settings.model, model, task.input_shape, placement.runtime.check_step)
        if placement.effective_device == "cpu" and not jit_compile:
            # This module needs TensorFlow, which a JAX environment may lack.
            from pipeline.models.cpu_kernels import use_fast_kernels

            use_fast_kernels(model)
        model.compile(
            optimizer=_optimizer(model, training_recipe, settings, total_steps=steps * settings.epochs),
            loss=mixed_loss(loss, label_weights(manifest, settings)) if labels_mixed else loss,
            metrics=[mixed_accuracy()] if labels_mixed else problem.metrics(),
            jit_compile=jit_compile,
            # Keras supports several steps per execution only on one replica (keras-team/keras issue 19246).
            steps_per_execution=min(STEPS_PER_EXECUTION, steps) if placement.num_replicas == 1 else 1,
        )
    return model


def seeded_model(manifest: Mapping, settings: TrainSettings, precision: str) -> keras.Model:
    """Build a model with seeded weights, the first of Keras's session. SettingsError: it does not fit the records."""
    keras.utils.set_random_seed(settings.seed)
    return build_for_task(problem_of_records(manifest).task(manifest), settings.model, precision)


def _optimizer(model: keras.Model, recipe: Recipe, settings: TrainSettings, *, total_steps: int) -> keras.Optimizer:
    optimizer = make_optimizer(recipe, settings, total_steps=total_steps)
    if isinstance(optimizer, KernelMuon):
        optimizer.exclude_from_muon(last_matrices(model))
    # Biases and the scales of normalization layers are vectors.
    if settings.weight_decay != OF_THE_RECIPE and not recipe.decays_vectors:
        optimizer.exclude_from_weight_decay([vector for vector in model.trainable_variables if len(vector.shape) < 2])
    # Building before the first step gives the variables the same names in a resumed run.
    optimizer.build(model.trainable_variables)
    return optimizer


def label_weights(manifest: Mapping, settings: TrainSettings) -> dict[int, float]:
    """Label → its weight in the loss for [Train] class_weight. Empty if all labels have the same weight.

    The mean weight of the train split is 1. Labels without examples there have the weight 1.
    """
    if settings.class_weight == "none":
        return {}
    counts = [*manifest["splits"]["train"]["label_counts"].values()]
    per_label = sum(counts) / sum(map(bool, counts))
    return {label: per_label / count if count else 1.0 for label, count in enumerate(counts)}


def mixed_loss(plain: Crossentropy, weights: Mapping[int, float] | None = None) -> Callable:
    """Loss for plain labels or mixed labels, float32 (batch, 3): label, second label, share of the first label.

    ``weights`` of labels apply to mixed labels only, which evaluations have not.
    """
    by_label = np.array([*weights.values()] if weights else [], np.float32)

    def loss(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        if not (columns := _mixed_columns(labels)):
            return plain(labels, outputs)
        first, second, share = columns
        rest = 1 - share
        if weights:
            share, rest = share * keras.ops.take(by_label, first), rest * keras.ops.take(by_label, second)
        return share * plain(first, outputs) + rest * plain(second, outputs)

    loss.of_plain = plain
    return loss


def mixed_accuracy() -> keras.Metric:
    """Accuracy for plain or mixed labels. In a mixed example, the label with the greater share counts."""

    def is_correct(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        if columns := _mixed_columns(labels):
            first, second, share = columns
            labels = keras.ops.where(share >= 0.5, first, second)
        return keras.metrics.sparse_categorical_accuracy(labels, outputs)

    return keras.metrics.MeanMetricWrapper(is_correct, name="accuracy")


def _mixed_columns(labels: keras.KerasTensor) -> tuple[keras.KerasTensor, keras.KerasTensor, keras.KerasTensor] | None:
    """Columns of mixed labels. None for plain labels, as in the evaluation."""
    # This module needs TensorFlow, which a JAX environment may lack.
    from pipeline.augmentation import MIXED_WIDTH

    if len(labels.shape) != 2 or labels.shape[1] != MIXED_WIDTH:
        return None
    return keras.ops.cast(labels[:, 0], "int32"), keras.ops.cast(labels[:, 1], "int32"), labels[:, 2]


def write_seeded_weights(records_folder: Path, settings: TrainSettings, file: Path) -> None:
    """Write a run's seeded weights to a safetensors file, for training on another backend."""
    keras.utils.clear_session()
    save_file(named_weights(seeded_model(read_manifest(records_folder), settings, "float32")), file)


def begin(
    model: keras.Model,
    settings: TrainSettings,
    initial: InitialWeights | None,
    train: Stream,
    *,
    seeded_weights: Path | None = None,
) -> dict[str, Any] | None:
    """Assign seeded weights, adapt the model to the train split, load initial weights and freeze layers.

    ``seeded_weights`` is a file of ``write_seeded_weights``. Initial weights replace the result of the adaptation. A
    layer loads them if the file has all its variables with the same names and shapes. The last layers may therefore
    differ, for example if the labels differ. SettingsError: no layer fits, the pattern freezes no layer or all layers,
    or user code fails. Return the fields of ``Beginning`` in the record, or None if no layer was adapted, loaded or
    frozen.
    """
    if seeded_weights:
        assign(named_variables(model), load_file(seeded_weights))
    adapted = 0
    if adapter := find_adapter(settings.model):
        examples, _ = next(train.evaluation().unbatch().batch(ADAPTED_EXAMPLES).as_numpy_iterator())
        adapter(model, examples)
        adapted = len(examples)
        _logger.info("Adapted the model to %s examples of the train split.", f"{adapted:,}")
    loaded, omitted = _load_initial(model, settings, initial) if initial else ((), {})
    frozen = _freeze(model, settings.freeze) if settings.freeze else ()
    if fine_tune := effective_fine_tune(settings, initial):
        frozen += freeze_backbone(model, fine_tune)
    if not (initial or frozen or adapted):
        return None
    return {"taken": loaded, "left": omitted, "frozen": frozen, "adapted_examples": adapted}


def _load_initial(model: keras.Model, settings: TrainSettings, initial: InitialWeights) -> tuple[tuple[str, ...], dict]:
    """Load initial weights. Return the loaded layers, and the reason for each omitted layer."""
    file = initial.file
    if digest_of(file, settings.initial_weights) != initial.digest:
        raise SettingsError(
            f"[Train] initial_weights: {file} has changed since the start of this command. Run the command again."
        )
    weights = _read(file, model)
    layers: dict[str, dict[str, keras.Variable]] = {}
    for name, variable in named_variables(model).items():
        layers.setdefault(name.rpartition("/")[0] or name, {})[name] = variable
    omitted = {layer: reason for layer, variables in layers.items() if (reason := _load_error(variables, weights))}
    loaded = tuple(layer for layer in layers if layer not in omitted)
    if not loaded:
        raise SettingsError(
            f"[Train] initial_weights: {file} fits no layer of {settings.model}. Differences: "
            f"{_listed(f'{layer} ({reason})' for layer, reason in omitted.items())}. Pass weights of the same "
            "architecture."
        )
    for layer in loaded:
        assign(layers[layer], weights)
    for name, layer in named_layers(model):
        # Preprocessing layers cache values that they derive from their weights.
        if name in loaded and hasattr(layer, "finalize_state"):
            layer.finalize_state()
    _logger.info("Loaded initial weights from %s into %s.", file.name, plural(len(loaded), "layer"))
    for layer, reason in omitted.items():
        _logger.info("Layer %s keeps its seeded weights: %s", layer, reason)
    return loaded, omitted


def _read(file: Path, model: keras.Model) -> dict[str, np.ndarray]:
    try:
        # The settings accept no .pth or .h5 file of the user.
        if file.suffix == ".h5":
            return read_keras_weights(file, model)
        if file.suffix == ".keras":
            return named_weights(keras.saving.load_model(file, safe_mode=True, compile=False))
        return (imagenet_weights if file.suffix == ".pth" else load_file)(file)
    # Readers of untrusted files raise many types of exceptions.
    except Exception as error:
        text = " ".join(str(error).split())[:400]
        raise SettingsError(
            f"[Train] initial_weights: cannot read {file} ({text}). "
            + ("Remove it to download it again." if file.suffix == ".h5" else "Pass a .keras or .safetensors file.")
        ) from error


def _load_error(variables: Mapping[str, keras.Variable], weights: Mapping[str, np.ndarray]) -> str:
    """Reason that a layer cannot load the weights. Empty if it can."""
    for name, variable in variables.items():
        shape, saved = tuple(variable.shape), weights[name].shape if name in weights else None
        if saved != shape:
            return f"missing {name}" if saved is None else _shape_error(name, shape, saved)
    return ""


def _freeze(model: keras.Model, pattern: str) -> tuple[str, ...]:
    """Freeze the layers whose full name, or the name of an enclosing model, matches the whole pattern."""
    layers = {name: layer for name, layer in named_layers(model) if layer.weights}

    def matches(name: str) -> bool:
        # The layer "a/b/c" has the prefixes "a", "a/b" and "a/b/c".
        return any(re.fullmatch(pattern, prefix) for prefix in accumulate(name.split("/"), "{}/{}".format))

    frozen = tuple(filter(matches, layers))
    if not frozen:
        raise SettingsError(
            f"[Train] freeze: {pattern!r} matches no whole name of a layer. Pass a regular expression for "
            f"{_listed(layers)}."
        )
    for name in frozen:
        layers[name].trainable = False
    if not model.trainable_variables:
        raise SettingsError(
            f"[Train] freeze: {pattern!r} freezes every layer. Pass a regular expression that leaves a layer to train."
        )
    _logger.info("Froze the layers %s.", _listed(frozen))
    return frozen


@message
def _listed(names: Iterable[str]) -> str:
    listed, more = [*names][:_MAX_LISTED], [*names][_MAX_LISTED:]
    return ", ".join(listed) + (f" and {len(more)} more" if more else "")


@message
def _shape_error(name: str, shape: tuple[int, ...], file_shape: tuple[int, ...]) -> str:
    return f"{name} has the shape {shape} in the model and {file_shape} in the file"
