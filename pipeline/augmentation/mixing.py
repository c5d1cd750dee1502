"""Mixing: mixup, each example with the one before it in the epoch's order (the augmentation's aid).

As Zhang et al. 2018 mix: a share w of one example and 1 - w of another, w from the distribution Beta(alpha, alpha). The
other is not drawn: the order of an epoch is random already. It is the one before, across batches too, so that what an
example is mixed with does not depend on the size of the batch; the first of an epoch stays as it is.

Labels become three numbers: the example's label, the other's, and w. The loss is linear in the label, so that w times
the loss of one and 1 - w times the loss of the other is the loss of the mixed label, and no loss has to know how many
labels there are.
"""

import numpy as np
import tensorflow as tf

from pipeline.augmentation.draws import Draws

#: Columns of a batch's labels once they are mixed.
MIXED_WIDTH = 3

# Of one pixel to another, in whole numbers.
_STEPS = 256
_TABLE_SIZE = 4_097
_NO_LABEL = -1


def beta_quantiles(alpha: float) -> np.ndarray:
    """The quantiles of Beta(alpha, alpha) at equal distances from 0 to 1, float32 (4097,); by bisection."""
    shares = np.linspace(0, 1, _TABLE_SIZE)
    low, high = np.zeros_like(shares), np.ones_like(shares)
    alphas = np.full_like(shares, alpha)
    for _ in range(60):
        middle = (low + high) / 2
        below = tf.math.betainc(alphas, alphas, middle).numpy() < shares
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high.astype(np.float32)


def weights(draws: Draws, quantiles: np.ndarray) -> tf.Tensor:
    """How much of itself each example keeps, in 256ths: int32 (batch,) from 0 to 256."""
    place = draws.integer(0, 0, len(quantiles) - 1)
    return tf.cast(tf.round(tf.gather(tf.constant(quantiles), place) * _STEPS), tf.int32)


def with_the_one_before(batches: tf.data.Dataset) -> tf.data.Dataset:
    """(images, labels, weights) → the same, and of each example the image and label of the one before it.

    The first of all has none: its image is black there, its label -1.
    """
    shape = batches.element_spec[0].shape[1:]
    start = (tf.zeros([1, *shape], tf.uint8), tf.constant([_NO_LABEL], tf.int32))

    def follow(last: tuple[tf.Tensor, tf.Tensor], batch: tuple[tf.Tensor, ...]) -> tuple:
        before = tuple(tf.concat([one, many[:-1]], axis=0) for one, many in zip(last, batch[:2], strict=True))
        return tuple(many[-1:] for many in batch[:2]), (*batch, *before)

    return batches.scan(start, lambda last, batch: follow(last, batch))


@tf.function(autograph=False, reduce_retracing=True)
def mixed(
    images: tf.Tensor, labels: tf.Tensor, kept: tf.Tensor, other_images: tf.Tensor, other_labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixed images, uint8 of their shape, and labels, float32 (batch, 3): label, other label, share of the first."""
    alone = other_labels == _NO_LABEL
    kept = tf.where(alone, _STEPS, kept)
    share = tf.cast(kept, tf.float32)[:, None, None, None] / _STEPS
    here, there = tf.cast(images, tf.float32), tf.cast(other_images, tf.float32)
    found = tf.cast(tf.round(there + share * (here - there)), tf.uint8)
    others = tf.where(alone, labels, other_labels)
    columns = [tf.cast(labels, tf.float32), tf.cast(others, tf.float32), share[:, 0, 0, 0]]
    return found, tf.stack(columns, axis=1)
