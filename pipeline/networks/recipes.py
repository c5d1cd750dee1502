"""Recipes: optimizer, learning rate and loss by the name the settings call them (training's aid)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

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
    return RECIPES[recipe].optimizer(total_steps, scale)


def make_loss(recipe: str) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """The recipe's loss: (int labels (batch,), probabilities (batch, num_labels)) → float32 (batch,)."""
    smoothing = RECIPES[recipe].label_smoothing
    if not smoothing:
        return keras.losses.sparse_categorical_crossentropy

    def smoothed_crossentropy(labels: tf.Tensor, probabilities: tf.Tensor) -> tf.Tensor:
        one_hot = keras.ops.one_hot(keras.ops.reshape(labels, [-1]), probabilities.shape[-1])
        return keras.losses.categorical_crossentropy(one_hot, probabilities, label_smoothing=smoothing)

    return smoothed_crossentropy


def _baseline(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """RMSprop at 1e-3, as the tutorials train."""
    return keras.optimizers.RMSprop(1e-3 * scale)


def _onecycle(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """Nadam; the rate climbs linearly to 5e-3 over the first fifth of all steps and falls linearly to zero.

    With a few thousand steps in all, a second moment over the last hundred (beta_2 0.99) follows the gradients, and one
    over the last thousand does not; docs/LOG.md has what else was tried.
    """
    return keras.optimizers.Nadam(WarmUpLinearDecay(5e-3 * scale, total_steps, warm_up=0.2), beta_2=0.99)


def _lamb(total_steps: int, scale: float) -> keras.optimizers.Optimizer:
    """LAMB (You et al. 2020), which adapts the step to each layer's weights: for batches of thousands."""
    return keras.optimizers.Lamb(WarmUpLinearDecay(1e-2 * scale, total_steps, warm_up=0.2))


@dataclass(frozen=True)
class Recipe:
    """``optimizer`` takes the number of updates and the factor on its rate.

    ``label_smoothing`` is the share of each label that is spread over all labels (Szegedy et al. 2016).
    """

    optimizer: Callable[[int, float], keras.optimizers.Optimizer]
    label_smoothing: float = 0.0


RECIPES = {
    "baseline": Recipe(_baseline),
    "onecycle": Recipe(_onecycle, label_smoothing=0.1),
    "lamb": Recipe(_lamb),
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
