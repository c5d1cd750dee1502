"""Evaluation of several labels per image, and of numbers, with pictures of the worst predictions."""

import csv
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import scipy

from pipeline.problems.classification import (
    HALF,
    Predictions,
    average_precision,
    best_threshold,
    quick_metrics,
    read_names,
    scores,
)
from pipeline.problems.image_classification.evaluation import TILES_PER_ROW, as_tiles, predict, write_sheet
from pipeline.problems.problem import PREDICTIONS_NAME, TEST_IMAGES_NAME, EvaluatedRun, examples_at

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]

MAX_WORST = 24
_RESAMPLES, _BATCH = 1_000, 50
_MAX_POINTS = 300


def metrics(model: keras.Model, predictions: Predictions) -> dict[str, float | None]:
    """Return the mean loss, and the share of right decisions at a probability of one half. Numbers have no accuracy."""
    labels, outputs = predictions.labels, predictions.outputs
    loss = keras.ops.mean(model.loss(labels, keras.ops.convert_to_tensor(outputs)))
    has_accuracy = np.issubdtype(labels.dtype, np.integer)
    return {"loss": float(loss), "accuracy": float(((outputs > HALF) == labels).mean()) if has_accuracy else None}


def evaluate(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Write test_predictions.csv and the pictures of the worst predictions. See ``Problem.evaluation``."""
    of_problem = _label_facts if run.manifest["problem"] == "multi_label" else _value_facts
    # The predictions without NaN, float (examples, values), the errors that rank them, float (examples,), and facts.
    outputs, errors, facts = of_problem(predictions, run)
    names, keys = list(run.manifest["label_names"]), read_names(Path(run.test.split.files[0]).parent)
    labels, worst = predictions.labels, np.argsort(-errors, kind="stable")[:MAX_WORST].tolist()
    header = ["key", *(f"actual {name}" for name in names), *(f"predicted {name}" for name in names)]
    with (run.folder / PREDICTIONS_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = zip(keys, labels.tolist(), outputs.tolist(), strict=True)
        csv.writer(file).writerows(
            [header, *([key, *actual, *(f"{value:.6g}" for value in values)] for key, actual, values in rows)]
        )
    tiles = as_tiles(np.array([image for image, _ in examples_at(run.test, worst)], np.uint8))
    write_sheet(run.folder / TEST_IMAGES_NAME, tiles)
    common = {
        "problem": run.manifest["problem"],
        "label_names": names,
        "counts": {split: entry["num_examples"] for split, entry in run.manifest["splits"].items()},
        "num_examples": len(labels),
        "data_warnings": [list(warning) for warning in run.manifest.get("warnings", ())],
        "worst": [
            {"index": index, "name": keys[index], "actual": actual, "predicted": predicted}
            for index, actual, predicted in zip(worst, labels[worst].tolist(), outputs[worst].tolist(), strict=True)
        ],
        "tiles": {"per_row": TILES_PER_ROW, "height": tiles.shape[1], "width": tiles.shape[2]},
    }
    return common | facts, {}


def _label_facts(predictions: Predictions, run: EvaluatedRun) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return ``evaluate``'s values for labels. Their thresholds are those of the validation split."""
    probabilities, labels = np.nan_to_num(predictions.outputs, nan=0.0).astype(float), predictions.labels == 1
    thresholds = np.full(labels.shape[1], HALF)
    if run.validation:
        validation = predict(run.model, run.validation)
        pairs = zip(validation.labels.T == 1, np.nan_to_num(validation.outputs, nan=0.0).T, strict=True)
        thresholds = np.array([best_threshold(*pair) for pair in pairs])
    decided = probabilities >= thresholds
    # The surprise of all labels together, in nats.
    shares = np.where(labels, probabilities, 1 - probabilities).clip(1e-7)
    averages = [average_precision(*pair) for pair in zip(labels.T, probabilities.T, strict=True)]
    each = [scores(actual, chosen) for actual, chosen in zip(labels.T, decided.T, strict=True)]
    facts = {
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
    return probabilities, -np.log(shares).sum(axis=1), facts


def _mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that exist."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _value_facts(predictions: Predictions, run: EvaluatedRun) -> tuple[np.ndarray, np.ndarray, dict]:
    """Return ``evaluate``'s values for numbers."""
    means, deviations = (np.array(run.manifest[name]) for name in ("means", "deviations"))
    # A diverged model predicts the mean.
    values, actual = np.nan_to_num(predictions.outputs.astype(float), nan=means), predictions.labels.astype(float)
    points = np.linspace(0, len(actual) - 1, min(_MAX_POINTS, len(actual))).round().astype(int)
    facts = [
        {
            "mean": float(mean),
            "deviation": float(deviation),
            **{name: with_interval(function, *pair) for name, function in MEASURES.items()},
            "points": np.stack(pair, axis=1)[points].tolist(),
        }
        for mean, deviation, *pair in zip(means, deviations, actual.T, values.T, strict=True)
    ]
    errors = np.abs(values - actual) / np.where(deviations, deviations, 1)
    return values, errors.mean(axis=1), {"values": facts}


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
        options = {"n_resamples": _RESAMPLES, "batch": _BATCH, "paired": True, "method": "percentile"}
        rng = np.random.default_rng(0)
        found += scipy.stats.bootstrap((actual, predicted), measure, rng=rng, **options).confidence_interval
    return [value if np.isfinite(value) else None for value in map(float, [*found, np.nan, np.nan][:3])]
