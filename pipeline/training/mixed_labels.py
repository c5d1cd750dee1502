"""Mixed labels: loss and accuracy where examples were mixed (training's aid; augmentation/mixing.py).

A batch's labels are then float32 (batch, 3): label, other label, share of the first. Evaluation's are plain, so that
both are taken.
"""

import keras

from pipeline.augmentation import MIXED_WIDTH
from pipeline.networks.recipes import Loss


def mixed_loss(loss: Loss) -> Loss:
    """A loss that is linear in the label, of labels that may be mixed: the share of one loss and the rest of another.

    ``loss``: (int labels (batch,), probabilities (batch, num_labels)) → float32 (batch,).
    """

    def mixed(labels: keras.KerasTensor, probabilities: keras.KerasTensor) -> keras.KerasTensor:
        if not _are_mixed(labels):
            return loss(labels, probabilities)
        first, second, share = _columns(labels)
        return share * loss(first, probabilities) + (1 - share) * loss(second, probabilities)

    return mixed


class MixedAccuracy(keras.metrics.MeanMetricWrapper):
    """The share of examples of which the predicted label is that of the greater part; of plain labels, the accuracy."""

    def __init__(self, name: str = "accuracy") -> None:
        super().__init__(_is_right, name=name)


def _is_right(labels: keras.KerasTensor, probabilities: keras.KerasTensor) -> keras.KerasTensor:
    if _are_mixed(labels):
        first, second, share = _columns(labels)
        labels = keras.ops.where(share >= 0.5, first, second)
    return keras.metrics.sparse_categorical_accuracy(labels, probabilities)


def _are_mixed(labels: keras.KerasTensor) -> bool:
    return len(labels.shape) == 2 and labels.shape[1] == MIXED_WIDTH


def _columns(labels: keras.KerasTensor) -> tuple[keras.KerasTensor, keras.KerasTensor, keras.KerasTensor]:
    return keras.ops.cast(labels[:, 0], "int32"), keras.ops.cast(labels[:, 1], "int32"), labels[:, 2]
