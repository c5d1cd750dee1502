"""Metrics: what a run leaves by epoch, and the names of its files (… → training → **run** → report)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, message, read_text

WEIGHTS_NAME = "weights.safetensors"
MODEL_NAME = "model.keras"
METRICS_NAME = "metrics.jsonl"
EXPORT_NAME = "export.json"
# What evaluation.py writes, and the report reads.
EVALUATION_NAME = "evaluation.json"
MISTAKES_NAME = "mistakes.png"
EXAMPLES_NAME = "examples.png"
AUGMENTED_NAME = "augmented.png"


def weights_digest(manifest: Mapping[str, Any]) -> str | None:
    """The sha256 of the weights that a run ended with, by its manifest; None where it has none, for it was skipped."""
    return next((entry["sha256"] for entry in manifest["files"] if entry["name"] == WEIGHTS_NAME), None)


class EpochMetrics(Untrusted):
    """One finished epoch; seconds are wall-clock. The splits are called as in RunRecord."""

    epoch: Count
    loss: Figure
    accuracy: Figure
    val_loss: Figure
    val_accuracy: Figure
    validation_loss: Figure = None
    validation_accuracy: Figure = None
    train_seconds: Figure
    evaluation_seconds: Figure
    examples_per_second: Figure
    learning_rate: Figure


def append_metrics(path: Path, row: Mapping[str, float]) -> None:
    """Add one epoch's row to the file; a row is written by a single call, so a kill never leaves half of one behind."""
    with path.open("a", encoding="utf-8") as file:
        file.write(EpochMetrics(**row).model_dump_json(exclude_unset=True) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file, one for each finished epoch, by epoch.

    Raises:
        DamagedArtefactError: the file is missing or empty, or a line is not a row; names file, line and field.
    """
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DamagedArtefactError(message(path, "expected one JSON object per epoch, found none"))
    rows = [checked(EpochMetrics, line, path, place=f"line {number}").model_dump() for number, line in lines]
    return sorted(rows, key=lambda row: row["epoch"])
