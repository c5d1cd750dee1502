"""Recipes: optimizer and learning rate by the name the settings call them (training's aid)."""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

# The global batch the rates below were chosen for.
REFERENCE_BATCH_SIZE = 128


def make_optimizer(
    recipe: str, *, total_steps: int, global_batch_size: int, scale_learning_rate: str
) -> keras.optimizers.Optimizer:
    """The recipe's optimizer for ``total_steps`` updates.

    ``scale_learning_rate``: "linear" multiplies the rate by global_batch_size / 128 (Goyal et al. 2017), "sqrt" by its
    square root (Krizhevsky 2014, for LAMB You et al. 2020), "none" leaves it.
    """
    ratio = global_batch_size / REFERENCE_BATCH_SIZE
    scale = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scale_learning_rate]
    return RECIPES[recipe](total_steps, scale)


def _baseline(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """RMSprop at 1e-3, as the tutorials train."""
    return keras.optimizers.RMSprop(1e-3 * scale)


def _onecycle(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Adam; the rate climbs linearly to 5e-3 over the first fifth of all steps and falls linearly to zero."""
    return keras.optimizers.Adam(WarmUpLinearDecay(5e-3 * scale, total_steps, warm_up=0.2))


def _lamb(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """LAMB (You et al. 2020), which adapts the step to each layer's weights: for batches of thousands."""
    return keras.optimizers.Lamb(WarmUpLinearDecay(1e-2 * scale, total_steps, warm_up=0.2))


RECIPES: dict[str, Callable[[int, float], keras.optimizers.Optimizer]] = {
    "baseline": _baseline,
    "onecycle": _onecycle,
    "lamb": _lamb,
}


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that climbs linearly from zero to its peak and falls linearly back to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """``warm_up`` is the share of ``total_steps`` on the way up, more than 0 and less than 1."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of the ``step``-th update, counted from 0."""
        # The n-th update uses the rate at its end: the first is not wasted on a rate of zero.
        progress = (tf.cast(step, tf.float32) + 1.0) / (self.total_steps + 1.0)
        return self.peak * tf.minimum(progress / self.warm_up, (1.0 - progress) / (1.0 - self.warm_up))

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}
