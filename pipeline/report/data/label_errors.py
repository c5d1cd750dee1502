"""Suspected label errors, by confident learning (Northcutt, Jiang and Chuang 2021, arXiv 1911.00068)."""

from collections.abc import Collection

import numpy as np


def suspected_label_errors(
    labels: np.ndarray,
    predicted: np.ndarray,
    probability: np.ndarray,
    label_probability: np.ndarray,
    conflicts: Collection[int] = (),
) -> np.ndarray:
    """Return the indices of examples whose label may be wrong, int64 (suspects,).

    A label is suspect if the prediction is another label, and at least as probable as that label is on average on the
    examples that have it. The order is by the difference of the probabilities of the two labels, largest first.

    Args:
        labels: Labels of the examples, int (examples,).
        predicted: Most probable labels, int (examples,).
        probability: Probabilities of ``predicted``, float (examples,) from 0 to 1.
        label_probability: Probabilities of ``labels``, float (examples,) from 0 to 1.
        conflicts: Indices of examples that are suspect in any case, and come first.
    """
    counts = np.bincount(labels, minlength=predicted.max(initial=0) + 1)
    sums = np.bincount(labels, label_probability, minlength=len(counts))
    # A label without examples has no threshold. The mean of equal probabilities may be greater than each of them.
    thresholds = np.divide(sums, counts, out=np.full(len(counts), np.inf), where=counts > 0) - 1e-6
    is_conflict = np.isin(np.arange(len(labels)), [*conflicts])
    suspects = np.flatnonzero(is_conflict | ((predicted != labels) & (probability >= thresholds[predicted])))
    margin = probability[suspects] - label_probability[suspects]
    return suspects[np.lexsort((-margin, ~is_conflict[suspects]))]
