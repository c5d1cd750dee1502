"""Recipes: optimizer, learning rate schedule and loss by their names in the settings."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import keras

from pipeline.errors import SettingsError
from pipeline.networks.model import LOGITS, PROBABILITIES, LogitsCrossentropy, one_hot_as
from pipeline.networks.muon import KernelMuon

#: (labels, outputs) → the loss of each prediction.
Loss = Callable[[keras.KerasTensor, keras.KerasTensor], keras.KerasTensor]

_BASELINE_RATE, _ADAM_RATE, _ONECYCLE_RATE, _LAMB_RATE, _COSINE_RATE = 1e-3, 1e-3, 5e-3, 1e-2, 4e-3
_MUON_RATE, _MUON_SGD_RATE = 0.24, 5.2


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        optimizer: (number of updates, factor on the learning rate) → optimizer.
        label_smoothing: share of each label that is spread over all labels (Szegedy et al. 2016).
        learning_rate: peak rate at a factor of 1. None: the optimizer's constant rate.
        rates: factors on the learning rate of some variables, by regular expressions of their paths; see ``at_rates``.
        reference_batch_size: global batch size that the rates were chosen for.
        decays_vectors: whether weight decay includes biases and the scales of normalizations.
    """

    optimizer: Callable[[int, float], keras.optimizers.Optimizer]
    label_smoothing: float = 0.0
    learning_rate: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    reference_batch_size: int = 128
    decays_vectors: bool = False


def overridden(
    recipe: Recipe,
    *,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    label_smoothing: float | None = None,
) -> Recipe:
    """The recipe with some of its numbers replaced. None keeps the recipe's own."""
    if label_smoothing is not None:
        recipe = replace(recipe, label_smoothing=label_smoothing)
    if learning_rate is None and weight_decay is None:
        return recipe

    def optimizer(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
        if learning_rate is not None:
            # Scaled, so that the schedule keeps its form.
            own = recipe.learning_rate or _constant_rate(recipe.optimizer(total_steps, 1.0))
            scale = scale * learning_rate / own
        made = recipe.optimizer(total_steps, scale)
        if weight_decay is not None:
            # Every Keras optimizer takes it, decoupled from the gradient (Loshchilov and Hutter 2019).
            made.weight_decay = weight_decay or None
        return made

    return replace(recipe, optimizer=optimizer, learning_rate=learning_rate or recipe.learning_rate)


def make_optimizer(
    recipe: Recipe, *, total_steps: int, global_batch_size: int, scale_learning_rate: str
) -> keras.optimizers.Optimizer:
    """The recipe's optimizer for ``total_steps`` updates.

    ``scale_learning_rate``: "linear" multiplies the rate by the global batch over the recipe's own (Goyal et al. 2017),
    "sqrt" by its square root (Krizhevsky 2014, for LAMB You et al. 2020), "none" leaves it.

    Raises:
        SettingsError: another learning rate is set, and the recipe does not state its own.
    """
    ratio = global_batch_size / recipe.reference_batch_size
    scale = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scale_learning_rate]
    optimizer = recipe.optimizer(total_steps, scale)
    return at_rates(optimizer, recipe.rates) if recipe.rates else optimizer


def at_rates(optimizer: keras.optimizers.Optimizer, rates: Mapping[str, float]) -> keras.optimizers.Optimizer:
    """Multiply the learning rate of some variables. Weight decay keeps its own rate.

    Args:
        optimizer: not built yet. It keeps its class and configuration.
        rates: regular expression → factor. The first one found in a variable's path counts.
    """
    build, update_step, factors = optimizer.build, optimizer.update_step, []

    def build_in_groups(variables: Sequence[keras.Variable]) -> None:
        factors[:] = [_factor(variable.path, rates) for variable in variables]
        build(variables)

    def update_in_groups(
        gradient: keras.KerasTensor, variable: keras.Variable, learning_rate: keras.KerasTensor
    ) -> None:
        # By index, because the backend's variable has no path.
        update_step(gradient, variable, learning_rate * factors[optimizer._get_variable_index(variable)])

    optimizer.build, optimizer.update_step = build_in_groups, update_in_groups
    return optimizer


def _factor(path: str, rates: Mapping[str, float]) -> float:
    return next((factor for pattern, factor in rates.items() if re.search(pattern, path)), 1.0)


def make_loss(recipe: Recipe, kind: str = PROBABILITIES) -> Loss:
    """The recipe's loss: (int labels (batch, …), outputs of this kind (batch, …, num_labels)) → float32 (batch, …)."""
    smoothing = recipe.label_smoothing
    if kind == LOGITS:
        return LogitsCrossentropy(smoothing)
    if not smoothing:
        return keras.losses.sparse_categorical_crossentropy

    def smoothed_crossentropy(labels: keras.KerasTensor, probabilities: keras.KerasTensor) -> keras.KerasTensor:
        one_hot = one_hot_as(labels, probabilities)
        return keras.losses.categorical_crossentropy(one_hot, probabilities, label_smoothing=smoothing)

    return smoothed_crossentropy


def _constant_rate(optimizer: keras.optimizers.Optimizer) -> float:
    if isinstance(optimizer.get_config()["learning_rate"], dict):
        raise SettingsError(
            "[Train] learning_rate: expected a recipe that says its own, which this one is scaled by; its learning "
            "rate follows a schedule. Say the highest: Recipe(…, learning_rate=…)."
        )
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _baseline(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """RMSprop at 1e-3, as the tutorials train."""
    return keras.optimizers.RMSprop(_BASELINE_RATE * scale)


def _onecycle(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Nadam; the rate rises linearly to 5e-3 over the first fifth of all steps and falls linearly to zero."""
    # In a few thousand steps, a second moment over the last hundred (beta_2 0.99) follows the gradients (docs/LOG.md).
    return keras.optimizers.Nadam(WarmUpLinearDecay(_ONECYCLE_RATE * scale, total_steps, warm_up=0.2), beta_2=0.99)


def _adam(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Adam at Keras's default rate, as most tutorials train."""
    return keras.optimizers.Adam(_ADAM_RATE * scale)


def _lamb(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """LAMB (You et al. 2020), for batches of thousands."""
    return keras.optimizers.Lamb(WarmUpLinearDecay(_LAMB_RATE * scale, total_steps, warm_up=0.2))


def _adam_cosine(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Adam for recurrent models; the rate rises to 4e-3 over 2% of all steps and falls to zero by a half cosine."""
    # Gradients of long sequences exceed a norm of 1 at the beginning.
    schedule = WarmUpCosineDecay(_COSINE_RATE * scale, total_steps, warm_up=0.02)
    return keras.optimizers.Adam(schedule, beta_2=0.99, global_clipnorm=1.0)


def _muon(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Muon for matrices but the last, Nesterov's SGD for all else; the rate falls linearly from 0.24 to zero."""
    # As in airbench94_muon, whose loss is the sum over a batch of 2,000. With the mean loss of Keras, SGD's rate is
    # 2,000 times its 0.67 for the last layer, times 1 / 256 because the model scales its logits by 1 / 16.
    schedule = keras.optimizers.schedules.PolynomialDecay(_MUON_RATE * scale, total_steps, end_learning_rate=0.0)
    return KernelMuon(
        schedule,
        sgd_ratio=_MUON_SGD_RATE / _MUON_RATE,
        # Relative to Muon's rate and with SGD's momentum of 0.85, this is the published 4e-3 per step.
        weight_decay=0.11,
        exclude=(r"(^|/)embedding[^/]*/",),
    )


RECIPES = {
    "baseline": Recipe(_baseline, learning_rate=_BASELINE_RATE),
    "onecycle": Recipe(_onecycle, label_smoothing=0.1, learning_rate=_ONECYCLE_RATE),
    "adam": Recipe(_adam, learning_rate=_ADAM_RATE),
    "lamb": Recipe(_lamb, learning_rate=_LAMB_RATE),
    "adam_cosine": Recipe(_adam_cosine, learning_rate=_COSINE_RATE),
    # All biases at 0.053 · 2,000.
    "muon": Recipe(
        _muon,
        label_smoothing=0.2,
        learning_rate=_MUON_RATE,
        rates={r"/(bias|beta)$": 20.0},
        reference_batch_size=2_000,
        decays_vectors=True,
    ),
}


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from zero to its peak and falls linearly back to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """``warm_up``: share of ``total_steps`` before the peak, more than 0 and less than 1."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: keras.KerasTensor) -> keras.KerasTensor:
        """The learning rate of the ``step``-th update, counted from 0."""
        # The n-th update uses the rate at its end, so the first one has a rate above zero.
        progress = (keras.ops.cast(step, "float32") + 1.0) / (self.total_steps + 1.0)
        return self.peak * keras.ops.minimum(progress / self.warm_up, (1.0 - progress) / (1.0 - self.warm_up))

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}


class WarmUpCosineDecay(WarmUpLinearDecay):
    """A learning rate that rises linearly from zero to its peak and falls to zero by a half cosine."""

    def __call__(self, step: keras.KerasTensor) -> keras.KerasTensor:
        """The learning rate of the ``step``-th update, counted from 0."""
        progress = (keras.ops.cast(step, "float32") + 1.0) / (self.total_steps + 1.0)
        fallen = keras.ops.clip((progress - self.warm_up) / (1.0 - self.warm_up), 0.0, 1.0)
        falling = 0.5 + 0.5 * keras.ops.cos(math.pi * fallen)
        return self.peak * keras.ops.minimum(progress / self.warm_up, falling)
