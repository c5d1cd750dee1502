"""Loss and accuracy of mixed labels, float32 (batch, 3): label, other label, share of the first.

Labels of the evaluation are plain, so both kinds are accepted.
"""

from dataclasses import dataclass

import keras

from pipeline.augmentation import MIXED_WIDTH
from pipeline.networks.recipes import Loss


@dataclass(frozen=True)
class MixedLoss:
    """A loss of labels that may be mixed. ``of_plain``: (int labels (batch,), outputs (batch, n)) → (batch,)."""

    of_plain: Loss

    def __call__(self, labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """The loss of each example."""
        if not _are_mixed(labels):
            return self.of_plain(labels, outputs)
        first, second, share = _columns(labels)
        return share * self.of_plain(first, outputs) + (1 - share) * self.of_plain(second, outputs)


class MixedAccuracy(keras.metrics.MeanMetricWrapper):
    """The accuracy. The label of a mixed example is the one with the greater share."""

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
