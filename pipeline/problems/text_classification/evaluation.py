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
    texts = [excerpt(text) for text, _ in examples_at(run.test, [entry["index"] for entry in listed])]
    listed = [entry | {"text": text} for entry, text in zip(listed, texts, strict=True)]
    facts |= {
        "test_texts": listed[: len(shown)],
        "examples": listed[len(shown) :],
        "text_length": run.manifest["texts"]["length"],
        "longer_texts": run.manifest["texts"]["longer"],
    }
    return facts, {}


def excerpt(text: np.ndarray) -> str:
    """Return the beginning of a text, uint8 (bytes,) that may end with zeros."""
    return text.tobytes().rstrip(b"\0").decode("utf-8", "replace")[:MAX_EXCERPT]
