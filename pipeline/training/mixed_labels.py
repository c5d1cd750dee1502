"""Mixed labels: loss and accuracy where examples were mixed (training's aid; augmentation/mixing.py).

A batch's labels are then float32 (batch, 3): label, other label, share of the first. Evaluation's are plain, so that
both are taken.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from pipeline.augmentation import MIXED_WIDTH

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def mixed_loss(loss: Loss) -> Loss:
    """A loss that is linear in the label, of labels that may be mixed: the share of one loss and the rest of another.

    ``loss``: (int labels (batch,), probabilities (batch, num_labels)) → float32 (batch,).
    """

    def mixed(labels: tf.Tensor, probabilities: tf.Tensor) -> tf.Tensor:
        if not _are_mixed(labels):
            return loss(labels, probabilities)
        first, second, share = _columns(labels)
        return share * loss(first, probabilities) + (1 - share) * loss(second, probabilities)

    return mixed


class MixedAccuracy(keras.metrics.MeanMetricWrapper):
    """The share of examples of which the predicted label is that of the greater part; of plain labels, the accuracy."""

    def __init__(self, name: str = "accuracy") -> None:
        super().__init__(_is_right, name=name)


def _is_right(labels: tf.Tensor, probabilities: tf.Tensor) -> tf.Tensor:
    if _are_mixed(labels):
        first, second, share = _columns(labels)
        labels = tf.where(share >= 0.5, first, second)
    return keras.metrics.sparse_categorical_accuracy(labels, probabilities)


def _are_mixed(labels: tf.Tensor) -> bool:
    return len(labels.shape) == 2 and labels.shape[1] == MIXED_WIDTH


def _columns(labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    return tf.cast(labels[:, 0], tf.int32), tf.cast(labels[:, 1], tf.int32), labels[:, 2]
