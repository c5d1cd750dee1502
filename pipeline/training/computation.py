"""Computation: how a network is computed, apart from what is learned (training's aid).

Precision, XLA, steps in one execution, and whether the examples lie in memory: ``by_rule`` chooses from what is known
of the device. Timing the choices on the machine never found anything faster (docs/LOG.md).
"""

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import keras

from pipeline import machine
from pipeline.config.training import OF_THE_RECIPE, TrainSettings
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.networks.build import find_recipe
from pipeline.networks.cpu_kernels import quicken
from pipeline.networks.model import PROBABILITIES
from pipeline.networks.muon import KernelMuon, last_matrices
from pipeline.networks.recipes import Recipe, make_loss, make_optimizer
from pipeline.training.drawn import seeded_network, take_drawn

# Large enough that the cost of calling an execution vanishes, small enough that Ctrl-C is answered in a second.
STEPS_PER_EXECUTION = 32

# The setting cache → whether the examples lie in memory; None: where they fit.
_IN_MEMORY = {"auto": None, "memory": True, "none": False}

# A step holds what each layer puts out until its gradient is made, and the gradients of two layers at a time.
_STEP_BYTES_PER_ACTIVATION_BYTE = 2.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Computation:
    """``in_memory`` None: where the examples fit."""

    precision: str
    jit_compile: bool
    steps_per_execution: int = STEPS_PER_EXECUTION
    in_memory: bool | None = None


def by_rule(settings: TrainSettings, placement: Placement) -> Computation:
    """What is known to suit the device, where the settings say "auto"."""
    return Computation(
        precision=choose_precision(settings.precision, placement),
        jit_compile=choose_jit_compile(settings.jit_compile, placement),
        # Keras runs several steps in one execution on one replica only (keras-team/keras issue 19246).
        steps_per_execution=STEPS_PER_EXECUTION if placement.num_replicas == 1 else 1,
        in_memory=_IN_MEMORY[settings.cache],
    )


def compiled_model(
    manifest: Mapping,
    settings: TrainSettings,
    placement: Placement,
    computation: Computation,
    steps: int,
    *,
    outputs: str = PROBABILITIES,
    labels_mixed: bool = False,
    begin: Callable[[keras.Model], None] = lambda model: None,
    drawn: Path | None = None,
) -> keras.Model:
    """A new network of seeded weights in the scope of the placement's strategy, compiled for ``steps`` steps an epoch.

    ``outputs`` is what it gives, "logits" or "probabilities"; ``labels_mixed``: whether the labels it is trained on
    are, see mixed_labels.py; ``begin`` is called with it before it is compiled; ``drawn`` holds the seeded weights
    where another backend is to train with TensorFlow's.

    Raises:
        SettingsError: the network does not take the records' images.
    """
    recipe = find_recipe(settings.recipe, **recipe_overrides(settings))
    loss = make_loss(recipe, outputs)
    if labels_mixed:
        # Not above: what mixes them is TensorFlow's.
        from pipeline.training.mixed_labels import MixedAccuracy, MixedLoss

        loss = MixedLoss(loss)
    # Not inside: it clears away the distribution of JAX as well.
    keras.utils.clear_session()
    placement.runtime.set_matmul_precision(computation.precision)
    with placement.scope():
        model = seeded_network(manifest, settings, computation.precision)
        if drawn:
            take_drawn(model, drawn)
        begin(model)
        if placement.effective_device == "cpu" and not computation.jit_compile:
            quicken(model)
        model.compile(
            optimizer=_optimizer(model, recipe, settings, total_steps=steps * settings.epochs),
            loss=loss,
            metrics=[MixedAccuracy() if labels_mixed else "accuracy"],
            jit_compile=computation.jit_compile,
            steps_per_execution=min(computation.steps_per_execution, steps),
        )
    return model


def recipe_overrides(settings: TrainSettings) -> dict[str, float]:
    """Of the learning rate, the weight decay and the label smoothing those that are not the recipe's own."""
    given = {name: getattr(settings, name) for name in ("learning_rate", "weight_decay", "label_smoothing")}
    return {name: value for name, value in given.items() if value != OF_THE_RECIPE}


def _optimizer(model: keras.Model, recipe: Recipe, settings: TrainSettings, *, total_steps: int) -> keras.Optimizer:
    """The recipe's, built for the network's variables."""
    optimizer = make_optimizer(
        recipe,
        total_steps=total_steps,
        global_batch_size=settings.global_batch_size,
        scale_learning_rate=settings.scale_learning_rate,
    )
    if isinstance(optimizer, KernelMuon):
        optimizer.exclude_from_muon(last_matrices(model))
    # Not those that a decay would only shift: biases, and what a normalisation multiplies by.
    if "weight_decay" in recipe_overrides(settings) and not recipe.decays_vectors:
        vectors = [variable for variable in model.trainable_variables if len(variable.shape) < 2]
        optimizer.exclude_from_weight_decay(vectors)
    # Here and not in the first step: its variables are then called the same in a run that is resumed.
    optimizer.build(model.trainable_variables)
    return optimizer


def warn_of_memory(model: keras.Model, global_batch_size: int, placement: Placement) -> None:
    """Say so where a step on the CPU will not fit into the memory that is free; TensorFlow does not tell of others'."""
    needed, free = step_bytes(model, global_batch_size), machine.free_memory_bytes()
    if placement.effective_device == "cpu" and needed > free:
        _logger.warning(
            "[Train] global_batch_size: a step on %s images takes about %.1f GB of memory, %.1f GB are free; with less "
            "than it needs the run is killed or crawls. Up to %s would fit.",
            *(f"{global_batch_size:,}", needed / 1e9, free / 1e9, f"{global_batch_size * free // needed:,}"),
        )


def step_bytes(model: keras.Model, examples: int) -> int:
    """About what a step of training on so many examples takes, weights and the batch itself left out."""
    activations = sum(map(_bytes_put_out, model.layers))
    return int(_STEP_BYTES_PER_ACTIVATION_BYTE * activations * examples)


def _bytes_put_out(layer: keras.Layer) -> int:
    """What a layer puts out for one example; 0 where that is not known before it runs."""
    if isinstance(layer, keras.Model):
        return sum(map(_bytes_put_out, layer.layers))
    try:
        outputs = keras.tree.flatten(layer.output)
    # Of a model that is a class of its own, and of a layer that is called more than once.
    except (AttributeError, ValueError):
        return 0
    sizes = [math.prod(output.shape[1:]) for output in outputs if None not in output.shape[1:]]
    return sum(sizes) * _bytes_of(layer.compute_dtype)


def _bytes_of(dtype: str) -> int:
    """By the bits in its name: "bfloat16", "uint8"; a bool has none and takes one byte."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1
