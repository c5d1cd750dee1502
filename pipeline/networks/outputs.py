"""Outputs: what a network gives, logits or probabilities, and the one made of the other (… → training → …).

Most of ours end in probabilities. One that ends in logits, such as one's own may, is trained by them, which is exact
where a probability would round to 0, and it is saved as it is; whoever wants probabilities takes the softmax.
"""

from dataclasses import dataclass

import keras
import numpy as np

LOGITS, PROBABILITIES = "logits", "probabilities"


@dataclass(frozen=True)
class LogitsCrossentropy:
    """(int labels (batch, …), logits (batch, …, num_labels)) → float32 (batch, …)."""

    label_smoothing: float = 0.0

    def __call__(self, labels: keras.KerasTensor, logits: keras.KerasTensor) -> keras.KerasTensor:
        """The loss of each prediction."""
        if not self.label_smoothing:
            return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        one_hot = one_hot_as(labels, logits)
        smoothing = self.label_smoothing
        return keras.losses.categorical_crossentropy(one_hot, logits, from_logits=True, label_smoothing=smoothing)


def one_hot_as(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
    """Labels int (batch, …), which Keras may have given another dimension of 1, as the outputs (batch, …, n) are."""
    return keras.ops.one_hot(keras.ops.reshape(labels, keras.ops.shape(outputs)[:-1]), outputs.shape[-1])


def trained_by_logits(model: keras.Model) -> bool:
    """Whether a compiled network's outputs are logits."""
    # Where it learns from mixed labels, by the loss that it has of plain ones.
    return isinstance(getattr(model.loss, "of_plain", model.loss), LogitsCrossentropy)


def as_probabilities(outputs: np.ndarray, kind: str) -> np.ndarray:
    """Outputs of a network (examples, …, num_labels) of this kind, as float32 probabilities of the same shape.

    Kept apart from what the backend computes, so that they are the same in every batch.
    """
    outputs = outputs.astype(np.float32)
    if kind == PROBABILITIES:
        return outputs
    powers = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
