"""Evaluation of several labels per image. See ``Problem.evaluation``."""

import keras
import numpy as np

from pipeline.problems.classification import Predictions
from pipeline.problems.curves import HALF, average_precision, best_threshold, scores
from pipeline.problems.image_values.worst import common_facts, mean_loss, predict, quick_metrics
from pipeline.problems.problem import EvaluatedRun

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]


def metrics(model: keras.Model, predictions: Predictions) -> dict[str, float]:
    """Return the mean loss, and the share of right decisions at a probability of one half."""
    correct = (predictions.outputs > HALF) == predictions.labels
    return {"loss": mean_loss(model, predictions), "accuracy": float(correct.mean())}


def evaluate(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Write test_predictions.csv and the pictures. Thresholds are those of the validation split."""
    probabilities, labels = np.nan_to_num(predictions.outputs, nan=0.0).astype(float), predictions.labels == 1
    thresholds = np.full(labels.shape[1], HALF)
    if run.validation:
        validation = predict(run.model, run.validation)
        pairs = zip(validation.labels.T == 1, np.nan_to_num(validation.outputs, nan=0.0).T, strict=True)
        thresholds = np.array([best_threshold(*pair) for pair in pairs])
    decided = probabilities >= thresholds
    # The surprise of all labels together, in nats.
    shares = np.where(labels, probabilities, 1 - probabilities).clip(1e-7)
    facts = common_facts(predictions, probabilities, -np.log(shares).sum(axis=1), run)
    averages = [average_precision(*pair) for pair in zip(labels.T, probabilities.T, strict=True)]
    each = [scores(actual, chosen) for actual, chosen in zip(labels.T, decided.T, strict=True)]
    facts |= {
        "thresholds_of": "validation" if run.validation else "",
        "accuracy": float((decided == labels).mean()),
        "exact_matches": float((decided == labels).all(axis=1).mean()),
        "mean_average_precision": _mean(averages),
        "micro_f1": scores(labels, decided)["f1"],
        "macro_f1": _mean([one["f1"] for one in each]),
        "labels": [
            {"examples": int(actual.sum()), "threshold": float(threshold), "average_precision": average, **one}
            for actual, threshold, average, one in zip(labels.T, thresholds, averages, each, strict=True)
        ],
    }
    return facts, {}


def _mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that exist."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
