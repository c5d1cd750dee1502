"""Metrics of a run by epoch, its throughput without the epochs that compiled, and the names of its files."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pipeline.errors import DamagedArtifactError
from pipeline.runs.validation import Count, Number, Untrusted, checked, message, read_text, renamed

WEIGHTS_NAME = "weights.safetensors"
MODEL_NAME = "model.keras"
# In runs without a model.
TASK_NAME = "task.json"
METRICS_NAME = "metrics.jsonl"
EXPORT_NAME = "export.json"
# A folder of event files.
TENSORBOARD_NAME = "tensorboard"

#: Rows of metrics.jsonl with ``epoch``, from 1, and ``train_seconds``.
Rows = Sequence[Mapping[str, Any]]


def weights_digest(manifest: Mapping[str, Any]) -> str | None:
    """Return the sha256 of a run's weights from its manifest, None for a skipped run."""
    return next((entry["sha256"] for entry in manifest["files"] if entry["name"] == WEIGHTS_NAME), None)


class EpochMetrics(Untrusted):
    """Metrics of a finished epoch. Times are wall-clock seconds. Splits are named as in RunRecord."""

    epoch: Count
    loss: Number
    accuracy: Number
    test_loss: Annotated[Number, renamed("test_loss", "val_loss")]
    test_accuracy: Annotated[Number, renamed("test_accuracy", "val_accuracy")]
    validation_loss: Number = None
    validation_accuracy: Number = None
    train_seconds: Number
    # Part of train_seconds that fitted the last layer of a pretrained model.
    head_seconds: Number = None
    # Part of it that computed the inputs of this layer. 0 if they were read from their artifact.
    features_seconds: Number = None
    evaluation_seconds: Number
    examples_per_second: Number
    learning_rate: Number


def append_metrics(path: Path, row: Mapping[str, float]) -> None:
    """Append the row of an epoch in a single write, so that a kill leaves no partial row."""
    with path.open("a", encoding="utf-8") as file:
        file.write(EpochMetrics(**row).model_dump_json(exclude_unset=True) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a metrics file by epoch. Raises DamagedArtifactError if it is missing, empty or invalid."""
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DamagedArtifactError(message(path, "expected one JSON object per epoch, found none"))
    rows = [checked(EpochMetrics, line, path, label=f"line {number}").model_dump() for number, line in lines]
    return sorted(rows, key=lambda row: row["epoch"])


def compiling_epochs(run: Mapping[str, Any]) -> frozenset[int]:
    """Return the epochs of a run, from 1, that compiled. Each process compiles in its first epoch."""
    # An older record without segments contains only the last resumption.
    if segments := run.get("segments"):
        return frozenset(segment["first_epoch"] for segment in segments)
    return frozenset((1, run["epochs_restored"] + 1))


def epoch_seconds(rows: Rows, compiling: Collection[int]) -> float | None:
    """Return the mean seconds of an epoch that did not compile, None if all did or a value is unknown or infinite."""
    seconds = [row["train_seconds"] for row in rows if row["epoch"] not in compiling]
    if not seconds or None in seconds:
        return None
    mean = sum(seconds) / len(seconds)
    return mean if math.isfinite(mean) else None


def examples_per_second(rows: Rows, compiling: Collection[int], *, examples_per_epoch: int) -> float:
    """Return training examples per second, without the epochs that compiled unless all did."""
    seconds = epoch_seconds(rows, compiling) or epoch_seconds(rows, ())
    return examples_per_epoch / seconds


def compilation_seconds(rows: Rows, compiling: Collection[int]) -> float | None:
    """Return the extra seconds of the epochs that compiled, None without other epochs or extra seconds."""
    steady = epoch_seconds(rows, compiling)
    if steady is None:
        return None
    compiled = [row["train_seconds"] - (row.get("head_seconds") or 0) for row in rows if row["epoch"] in compiling]
    extra = sum(compiled) - steady * len(compiled)
    return extra if extra > 0 else None
