"""Evaluation of a text classifier on the test split, with the beginnings of its mistakes and of other test texts."""

import textwrap
from collections.abc import Sequence

import numpy as np

from pipeline.problems.classification import Predictions, evaluate_labels, metrics, predict, quick_metrics
from pipeline.problems.problem import EvaluatedRun, EvaluationSummary, examples_at

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]

# Characters of a text in the report.
MAX_EXCERPT = 300


def evaluate(predictions: Predictions, run: EvaluatedRun) -> EvaluationSummary:
    """Write evaluation.json and test_predictions.csv. See ``Problem.evaluation``."""
    evaluated = evaluate_labels(predictions, run)
    listed = [*evaluated.shown, *evaluated.random]
    texts = [excerpt(text) for text, _ in examples_at(run.test, [entry["index"] for entry in listed])]
    listed = [entry | {"text": text} for entry, text in zip(listed, texts, strict=True)]
    shown, random = listed[: len(evaluated.shown)], listed[len(evaluated.shown) :]
    length, longer = run.manifest["texts"]["length"], run.manifest["texts"]["longer"]
    facts = {
        **evaluated.facts,
        "test_texts": shown,
        "examples": random,
        "text_length": length,
        "longer_texts": longer,
    }
    run.write(facts)
    mistakes = _as_markdown(shown[: evaluated.num_mistakes], facts["label_names"])
    return EvaluationSummary(facts, {"mistakes": mistakes} if mistakes else {}, {})


def excerpt(text: np.ndarray) -> str:
    """Return the beginning of a text, uint8 (bytes,) that may end with zeros."""
    return text.tobytes().rstrip(b"\0").decode("utf-8", "replace")[:MAX_EXCERPT]


def _as_markdown(entries: Sequence[dict], names: Sequence[str]) -> str:
    # Markdown shows indented text as code.
    return "\n\n".join(
        f"{names[entry['predicted']]} ({names[entry['label']]}):\n\n{textwrap.indent(entry['text'], ' ' * 4)}"
        for entry in entries
    )
