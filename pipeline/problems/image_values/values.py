"""Evaluation of predicted numbers. See ``Problem.evaluation``."""

from collections.abc import Callable

import keras
import numpy as np
import scipy

from pipeline.problems.classification import Predictions
from pipeline.problems.image_values.worst import common_facts, mean_loss, predict, quick_metrics
from pipeline.problems.problem import EvaluatedRun

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]

_RESAMPLES, _BATCH = 1_000, 50
_MAX_POINTS = 300


def metrics(model: keras.Model, predictions: Predictions) -> dict[str, float | None]:
    """Return the mean loss. Numbers have no accuracy."""
    return {"loss": mean_loss(model, predictions), "accuracy": None}


def evaluate(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Write test_predictions.csv and the pictures."""
    means, deviations = (np.array(run.manifest[name]) for name in ("means", "deviations"))
    # A diverged model predicts the mean.
    values, actual = np.nan_to_num(predictions.outputs.astype(float), nan=means), predictions.labels.astype(float)
    errors = np.abs(values - actual) / np.where(deviations, deviations, 1)
    facts = common_facts(predictions, values, errors.mean(axis=1), run)
    points = np.linspace(0, len(actual) - 1, min(_MAX_POINTS, len(actual))).round().astype(int)
    facts["values"] = [
        {
            "mean": float(mean),
            "deviation": float(deviation),
            **{name: with_interval(function, *pair) for name, function in MEASURES.items()},
            "points": np.stack(pair, axis=1)[points].tolist(),
        }
        for mean, deviation, *pair in zip(means, deviations, actual.T, values.T, strict=True)
    ]
    return facts, {}


def determination(actual: np.ndarray, predicted: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return R², the share of the variance that the predictions explain. NaN without a variance."""
    residual = ((predicted - actual) ** 2).mean(axis=axis)
    variance = actual.var(axis=axis)
    return 1 - residual / np.where(variance, variance, np.nan)


#: Name in evaluation.json → function of actual and predicted values.
MEASURES = {
    "mae": lambda actual, predicted, axis=-1: np.abs(predicted - actual).mean(axis=axis),
    "rmse": lambda actual, predicted, axis=-1: np.sqrt(((predicted - actual) ** 2).mean(axis=axis)),
    "r2": determination,
}


def with_interval(measure: Callable, actual: np.ndarray, predicted: np.ndarray) -> list[float | None]:
    """Return a measure with the bounds of its 95% interval, by the percentiles of a bootstrap over examples.

    All arguments are float (examples,). Values that do not exist are None.
    """
    found = [float(measure(actual, predicted))]
    if len(actual) > 1:
        options = {"n_resamples": _RESAMPLES, "batch": _BATCH, "paired": True, "vectorized": True}
        interval = scipy.stats.bootstrap(
            (actual, predicted), measure, method="percentile", rng=np.random.default_rng(0), **options
        ).confidence_interval
        found += [float(interval.low), float(interval.high)]
    return [value if np.isfinite(value) else None for value in [*found, np.nan, np.nan][:3]]
