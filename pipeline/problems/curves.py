"""Curves and thresholds of the probabilities of a label.

``labels`` are bool and ``probabilities`` float (examples,). Equal probabilities are one step of a curve.
"""

import numpy as np
import scipy

#: Threshold without a validation split to choose it.
HALF = 0.5
# More points are not visible in a chart.
_MAX_POINTS = 200


def steps(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hits, examples and threshold from each different probability on, greatest first, each (steps,)."""
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], labels[order].cumsum()
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    return hits[ends], ends + 1, values[ends]


def roc_auc(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the probability that an example of the label ranks above another one. None without one of both."""
    if labels.all() or not labels.any():
        return None
    rank_sum = scipy.stats.mannwhitneyu(probabilities[labels], probabilities[~labels]).statistic
    return float(rank_sum / labels.sum() / (~labels).sum())


def curves(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, list[list[float]]]:
    """Return points of ``roc`` (false positive rate, recall) and ``precision_recall`` (recall, precision).

    Both are empty unless there are examples with and without the label.
    """
    if labels.all() or not labels.any():
        return {"roc": [], "precision_recall": []}
    hits, chosen, _ = steps(labels, probabilities)
    shown = np.unique(np.linspace(0, len(hits) - 1, min(_MAX_POINTS, len(hits))).round().astype(int))
    recall, false_rate = hits / labels.sum(), (chosen - hits) / (~labels).sum()
    points = {"roc": (false_rate, recall), "precision_recall": (recall, hits / chosen)}
    rounded = {name: np.stack(pair, axis=1)[shown].round(5).tolist() for name, pair in points.items()}
    return rounded | {"roc": [[0.0, 0.0], *rounded["roc"]]}


def scores(actual: np.ndarray, decided: np.ndarray) -> dict[str, float | None]:
    """Return ``precision``, ``recall`` and ``f1`` of decisions, bool of any shape. None for a division by zero."""
    hits, chosen, positive = int((actual & decided).sum()), int(decided.sum()), int(actual.sum())
    pairs = {"precision": (hits, chosen), "recall": (hits, positive), "f1": (2 * hits, chosen + positive)}
    return {name: count / total if total else None for name, (count, total) in pairs.items()}


def average_precision(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the area under the steps of precision over recall. None without an example of the label."""
    if not labels.any():
        return None
    hits, chosen, _ = steps(labels, probabilities)
    return float((np.diff(hits, prepend=0) * hits / chosen).sum() / labels.sum())


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold with the greatest F1, halfway between two probabilities. Without an example, one half."""
    if not labels.any():
        return HALF
    hits, chosen, values = steps(labels, probabilities)
    best = int((hits / (chosen + labels.sum())).argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)
