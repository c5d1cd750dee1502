"""Evaluation of a text classifier on the test split, with the beginnings of its mistakes and of other test texts."""

import numpy as np

from pipeline.problems.classification import Predictions, evaluate_labels, metrics, predict, quick_metrics
from pipeline.problems.problem import EvaluatedRun, examples_at

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]

# Characters of a text in the report.
MAX_EXCERPT = 300


def evaluate(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Write test_predictions.csv. See ``Problem.evaluation``."""
    facts, shown, random = evaluate_labels(predictions, run)
    listed = [*shown, *random]
    for entry, (text, _) in zip(listed, examples_at(run.test, [entry["index"] for entry in listed]), strict=True):
        entry["text"] = text.tobytes().rstrip(b"\0").decode("utf-8", "replace")[:MAX_EXCERPT]
    facts |= {
        "test_texts": shown,
        "examples": random,
        "text_length": run.manifest["texts"]["length"],
        "longer_texts": run.manifest["texts"]["longer"],
    }
    return facts, {}
