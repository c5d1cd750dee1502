"""Precision, recall and thresholds of the probabilities of a label.

``labels`` are bool and ``probabilities`` float (examples,). Equal probabilities are one step of a curve.
"""

import numpy as np

#: Threshold without a validation split to choose it.
HALF = 0.5


def precision_recall(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return recall, precision and threshold of each different probability, greatest first, float (steps,)."""
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], labels[order].cumsum()
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    return hits[ends] / labels.sum(), hits[ends] / (ends + 1), values[ends]


def average_precision(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the area under the steps of precision over recall. None without an example of the label."""
    if not labels.any():
        return None
    recall, precision, _ = precision_recall(labels, probabilities)
    return float((np.diff(recall, prepend=0) * precision).sum())


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold with the greatest F1, halfway between two probabilities. Without an example, one half."""
    if not labels.any():
        return HALF
    recall, precision, values = precision_recall(labels, probabilities)
    best = int((2 * precision * recall / np.maximum(precision + recall, 1e-12)).argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)
