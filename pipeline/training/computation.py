"""The compiled model: precision, XLA, steps per execution, loss and optimizer.

Rules choose what the settings leave open. Timing the choices on the machine never found anything faster (docs/LOG.md).
"""

from collections.abc import Callable, Mapping

import keras

from pipeline.config.training import OF_THE_RECIPE, TrainSettings
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.networks.build import find_recipe
from pipeline.networks.model import PROBABILITIES, Crossentropy
from pipeline.networks.muon import KernelMuon, last_matrices
from pipeline.networks.recipes import Recipe, make_optimizer
from pipeline.problems import problem_of_records
from pipeline.training.initial import seeded_network

# Large enough to hide the cost of a call, and small enough for an answer to Ctrl-C within a second.
STEPS_PER_EXECUTION = 32


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
    recipe, overrides = find_recipe(settings.recipe), recipe_overrides(settings)
    problem = problem_of_records(manifest)
    loss = problem.loss(outputs, overrides.get("label_smoothing", recipe.label_smoothing))
    # Outside the scope, because it clears the distribution of JAX too.
    keras.utils.clear_session()
    placement.runtime.set_matmul_precision(precision)
    with placement.scope():
        model = seeded_network(manifest, settings, precision)
        prepare(model)
        if placement.effective_device == "cpu" and not jit_compile:
            # JAX trains without TensorFlow being installed.
            from pipeline.networks.cpu_kernels import quicken

            quicken(model)
        model.compile(
            optimizer=_optimizer(model, recipe, settings, total_steps=steps * settings.epochs),
            loss=mixed_loss(loss) if labels_mixed else loss,
            metrics=[mixed_accuracy()] if labels_mixed else problem.metrics(),
            jit_compile=jit_compile,
            # Keras runs several steps in one execution on one replica only (keras-team/keras issue 19246).
            steps_per_execution=min(STEPS_PER_EXECUTION, steps) if placement.num_replicas == 1 else 1,
        )
    return model


def recipe_overrides(settings: TrainSettings) -> dict[str, float]:
    """The settings that override the recipe's learning rate, weight decay and label smoothing."""
    given = {name: getattr(settings, name) for name in ("learning_rate", "weight_decay", "label_smoothing")}
    return {name: value for name, value in given.items() if value != OF_THE_RECIPE}


def _optimizer(model: keras.Model, recipe: Recipe, settings: TrainSettings, *, total_steps: int) -> keras.Optimizer:
    overrides = recipe_overrides(settings)
    optimizer = make_optimizer(
        recipe,
        total_steps=total_steps,
        global_batch_size=settings.global_batch_size,
        scale_learning_rate=settings.scale_learning_rate,
        learning_rate=overrides.get("learning_rate"),
        weight_decay=overrides.get("weight_decay"),
    )
    if isinstance(optimizer, KernelMuon):
        optimizer.exclude_from_muon(last_matrices(model))
    # Without biases and the scales of normalizations.
    if "weight_decay" in overrides and not recipe.decays_vectors:
        vectors = [variable for variable in model.trainable_variables if len(variable.shape) < 2]
        optimizer.exclude_from_weight_decay(vectors)
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
