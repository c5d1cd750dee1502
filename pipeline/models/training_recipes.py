"""Recipes: optimizer, learning rate schedule and label smoothing by their names in the settings."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from pipeline.errors import SettingsError
from pipeline.models.muon import KernelMuon


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        optimizer: (number of updates, factor on the learning rate) → optimizer.
        label_smoothing: share of each label that is spread over all labels (Szegedy et al. 2016).
        learning_rate: peak rate at a factor of 1. None: the optimizer's constant rate.
        reference_batch_size: global batch size that the rates were chosen for.
        decays_vectors: whether weight decay includes biases and the scales of normalizations.
    """

    optimizer: Callable[[int, float], keras.optimizers.Optimizer]
    label_smoothing: float = 0.0
    learning_rate: float | None = None
    reference_batch_size: int = 128
    decays_vectors: bool = False


def make_optimizer(
    training_recipe: Recipe,
    *,
    total_steps: int,
    global_batch_size: int,
    scale_learning_rate: str,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
) -> keras.optimizers.Optimizer:
    """The recipe's optimizer for ``total_steps`` updates. ``learning_rate`` and ``weight_decay`` replace its own.

    ``scale_learning_rate``: "linear" multiplies the rate by the global batch over the recipe's own (Goyal et al. 2017),
    "sqrt" by its square root (Krizhevsky 2014, for LAMB You et al. 2020), "none" leaves it.

    Raises:
        SettingsError: another learning rate is set, and the recipe does not state its own.
    """
    ratio = global_batch_size / training_recipe.reference_batch_size
    scale = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scale_learning_rate]
    if learning_rate is not None:
        # Scaled, so that the schedule keeps its form.
        scale = (
            scale
            * learning_rate
            / (training_recipe.learning_rate or _constant_rate(training_recipe.optimizer(total_steps, 1.0)))
        )
    optimizer = training_recipe.optimizer(total_steps, scale)
    if weight_decay is not None:
        # Every Keras optimizer takes it, decoupled from the gradient (Loshchilov and Hutter 2019).
        optimizer.weight_decay = weight_decay or None
    return optimizer


def _constant_rate(optimizer: keras.optimizers.Optimizer) -> float:
    if isinstance(optimizer.get_config()["learning_rate"], dict):
        raise SettingsError(
            "[Train] learning_rate: expected a recipe that says its own, which this one is scaled by; its learning "
            "rate follows a schedule. Say the highest: Recipe(…, learning_rate=…)."
        )
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from zero to its peak and falls linearly back to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """``warm_up``: share of ``total_steps`` before the peak, more than 0 and less than 1."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: keras.KerasTensor) -> keras.KerasTensor:
        """The learning rate of the ``step``-th update, counted from 0."""
        # The n-th update uses the rate at its end, so the first one has a rate above zero.
        progress = (keras.ops.cast(step, "float32") + 1.0) / (self.total_steps + 1.0)
        return self.peak * keras.ops.minimum(progress / self.warm_up, self.falling(progress))

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """The factor on the peak after the warm-up, for a progress from 0 to 1."""
        return (1.0 - progress) / (1.0 - self.warm_up)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}


class WarmUpCosineDecay(WarmUpLinearDecay):
    """A learning rate that rises linearly from zero to its peak and falls to zero by a half cosine."""

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """See WarmUpLinearDecay."""
        fallen = keras.ops.clip((progress - self.warm_up) / (1.0 - self.warm_up), 0.0, 1.0)
        return 0.5 + 0.5 * keras.ops.cos(math.pi * fallen)


def _recipe(peak: float, make: Callable[[float, int], keras.optimizers.Optimizer], **options: Any) -> Recipe:
    """A recipe by a function of the peak rate and the number of updates."""
    return Recipe(lambda steps, scale: make(peak * scale, steps), learning_rate=peak, **options)


def _muon(rate: float, steps: int) -> KernelMuon:
    """Muon for matrices but the last, Nesterov's SGD for all else; the rate falls linearly to zero."""
    # As in airbench94_muon, whose loss is the sum over a batch of 2,000. With the mean loss of Keras, SGD's rate is
    # 2,000 times its 0.67 for the last layer, times 1 / 256 because the model scales its logits by 1 / 16.
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0)
    return KernelMuon(
        schedule,
        sgd_ratio=5.2 / 0.24,
        # Relative to Muon's rate and with SGD's momentum of 0.85, this is the published 4e-3 per step.
        weight_decay=0.11,
        exclude=(r"(^|/)embedding[^/]*/",),
        # All biases at 0.053 · 2,000.
        rates={r"/(bias|beta)$": 20.0},
    )


# The tutorials train by these two.
BASELINE = _recipe(1e-3, lambda rate, steps: keras.optimizers.RMSprop(rate))
ADAM = _recipe(1e-3, lambda rate, steps: keras.optimizers.Adam(rate))
# In a few thousand steps, a second moment over the last hundred (beta_2 0.99) follows the gradients (docs/LOG.md).
ONECYCLE = _recipe(
    5e-3,
    lambda rate, steps: keras.optimizers.Nadam(WarmUpLinearDecay(rate, steps, warm_up=0.2), beta_2=0.99),
    label_smoothing=0.1,
)
# For batches of thousands (You et al. 2020).
LAMB = _recipe(1e-2, lambda rate, steps: keras.optimizers.Lamb(WarmUpLinearDecay(rate, steps, warm_up=0.2)))
# For recurrent models. Gradients of long sequences exceed a norm of 1 at the beginning.
ADAM_COSINE = _recipe(
    4e-3,
    lambda rate, steps: keras.optimizers.Adam(
        WarmUpCosineDecay(rate, steps, warm_up=0.02), beta_2=0.99, global_clipnorm=1.0
    ),
)
MUON = _recipe(0.24, _muon, label_smoothing=0.2, reference_batch_size=2_000, decays_vectors=True)
