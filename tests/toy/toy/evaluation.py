"""The evaluation of sums on a split."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sums:
    """``labels`` int (examples,), and the ``values`` float32 (examples,) of the model."""

    labels: np.ndarray
    values: np.ndarray


def predict(model, stream, test_time_augmentation="none"):
    labels = np.concatenate([labels for _, labels in stream.evaluation().as_numpy_iterator()])
    return Sums(labels, model.predict(stream.evaluation(), verbose=0)[..., 0])


def metrics(model, predictions):
    errors = predictions.labels - predictions.values
    return {
        "loss": float((errors**2).mean()),
        "accuracy": float((predictions.values.round() == predictions.labels).mean()),
    }


def quick_metrics(model, stream):
    return metrics(model, predict(model, stream))


def evaluate(predictions, run):
    errors = np.abs(predictions.labels - predictions.values)
    facts = {"num_examples": len(errors), "mean_error": float(errors.mean()), "worst_error": float(errors.max())}
    return facts, {}
