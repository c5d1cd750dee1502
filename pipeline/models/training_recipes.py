"""Training recipes: optimizer, learning rate schedule and label smoothing."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from pipeline.errors import SettingsError
from pipeline.models.muon import KernelMuon
from pipeline.settings.training import OF_THE_RECIPE, TrainSettings


@dataclass(frozen=True)
class Recipe:
    """Training recipe.

    Attributes:
        optimizer: Function of the number of updates and a factor on the learning rate. It returns an optimizer.
        label_smoothing: Share of each label to spread over all labels (Szegedy et al. 2016).
        learning_rate: Peak rate for a factor of 1. None means the optimizer's constant rate.
        reference_batch_size: Global batch size for which the rates were chosen.
        decays_vectors: Whether weight decay includes biases and the scales of normalization layers.
    """

    optimizer: Callable[[int, float], keras.optimizers.Optimizer]
    label_smoothing: float = 0.0
    learning_rate: float | None = None
    reference_batch_size: int = 128
    decays_vectors: bool = False


def make_optimizer(recipe: Recipe, settings: TrainSettings, *, total_steps: int) -> keras.optimizers.Optimizer:
    """Build the recipe's optimizer for ``total_steps`` updates. Settings override its learning rate and weight decay.

    [Train] scale_learning_rate "linear" multiplies the rate by the ratio of the batch size to the reference (Goyal et
    al. 2017). "sqrt" multiplies it by the root of this ratio (Krizhevsky 2014, for LAMB You et al. 2020).
    SettingsError: the settings override a schedule, and the recipe does not state its peak.
    """
    ratio = settings.global_batch_size / recipe.reference_batch_size
    scale = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[settings.scale_learning_rate]
    if settings.learning_rate != OF_THE_RECIPE:
        # Scaling keeps the form of the schedule.
        peak = recipe.learning_rate or _constant_rate(recipe.optimizer(total_steps, 1.0))
        scale = scale * settings.learning_rate / peak
    optimizer = recipe.optimizer(total_steps, scale)
    if settings.weight_decay != OF_THE_RECIPE:
        # Every Keras optimizer supports weight decay, decoupled from the gradient (Loshchilov and Hutter 2019).
        optimizer.weight_decay = settings.weight_decay or None
    return optimizer


def _constant_rate(optimizer: keras.optimizers.Optimizer) -> float:
    if isinstance(optimizer.get_config()["learning_rate"], dict):
        raise SettingsError(
            "[Train] learning_rate: cannot override the schedule of this training recipe, because its peak is unknown. "
            "Pass the peak as Recipe(…, learning_rate=…)."
        )
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from zero to its peak and falls linearly to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """Create a schedule. ``warm_up``, between 0 and 1, is the share of ``total_steps`` before the peak."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: keras.KerasTensor) -> keras.KerasTensor:
        """Learning rate of the update ``step``, from 0."""
        # Each update uses the rate at its end, so the rate of update 0 is above zero.
        progress = (keras.ops.cast(step, "float32") + 1.0) / (self.total_steps + 1.0)
        return self.peak * keras.ops.minimum(progress / self.warm_up, self.falling(progress))

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """Factor on the peak after the warm-up, for a progress from 0 to 1."""
        return (1.0 - progress) / (1.0 - self.warm_up)

    def get_config(self) -> dict:
        """Arguments of the constructor."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}


class WarmUpCosineDecay(WarmUpLinearDecay):
    """Learning rate that rises linearly from zero to its peak and falls to zero along a half cosine."""

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """See WarmUpLinearDecay."""
        fallen = keras.ops.clip((progress - self.warm_up) / (1.0 - self.warm_up), 0.0, 1.0)
        return 0.5 + 0.5 * keras.ops.cos(math.pi * fallen)


def _recipe(peak: float, make: Callable[[float, int], keras.optimizers.Optimizer], **options: Any) -> Recipe:
    """Training recipe from a function of the peak rate and the number of updates."""
    return Recipe(lambda steps, scale: make(peak * scale, steps), learning_rate=peak, **options)


def _muon(rate: float, steps: int) -> KernelMuon:
    """Muon for all matrices except the last, and SGD with Nesterov momentum for the rest. The rate falls linearly."""
    # airbench94_muon sums its loss over a batch of 2,000. For Keras's mean loss, SGD's rate is 2,000 times the
    # published 0.67, times 1 / 256 because the model scales its logits by 1 / 16.
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0)
    return KernelMuon(
        schedule,
        sgd_ratio=5.2 / 0.24,
        # Relative to Muon's rate, with a momentum of 0.85, this equals the published 4e-3 per step.
        weight_decay=0.11,
        exclude=(r"(^|/)embedding[^/]*/",),
        # The published rate of biases is 0.053 · 2,000.
        rates={r"/(bias|beta)$": 20.0},
    )


# The tutorials use these two training recipes.
BASELINE = _recipe(1e-3, lambda rate, steps: keras.optimizers.RMSprop(rate))
ADAM = _recipe(1e-3, lambda rate, steps: keras.optimizers.Adam(rate))
# In a few thousand steps, beta_2 = 0.99 follows the gradients better than the default (docs/LOG.md).
ONECYCLE = _recipe(
    5e-3,
    lambda rate, steps: keras.optimizers.Nadam(WarmUpLinearDecay(rate, steps, warm_up=0.2), beta_2=0.99),
    label_smoothing=0.1,
)
# LAMB is meant for batches of thousands (You et al. 2020).
LAMB = _recipe(1e-2, lambda rate, steps: keras.optimizers.Lamb(WarmUpLinearDecay(rate, steps, warm_up=0.2)))
# This recipe is for recurrent models. Early gradients of long sequences exceed a norm of 1.
ADAM_COSINE = _recipe(
    4e-3,
    lambda rate, steps: keras.optimizers.Adam(
        WarmUpCosineDecay(rate, steps, warm_up=0.02), beta_2=0.99, global_clipnorm=1.0
    ),
)
MUON = _recipe(0.24, _muon, label_smoothing=0.2, reference_batch_size=2_000, decays_vectors=True)
# This recipe is for pretrained models, whose weights should change little.
FINE_TUNING = _recipe(
    3e-4, lambda rate, steps: keras.optimizers.Adam(WarmUpCosineDecay(rate, steps, warm_up=0.1)), label_smoothing=0.1
)
