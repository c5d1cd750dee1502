"""What a run leaves in plain text: its record and its per-epoch metrics (… → training → metrics → report)."""

import json
from collections.abc import Mapping
from pathlib import Path

RECORD_NAME = "run.json"
MODEL_NAME = "model.keras"
METRICS_NAME = "metrics.jsonl"
EXPORT_NAME = "export.json"
# What evaluation.py writes, and the report reads.
EVALUATION_NAME = "evaluation.json"
MISTAKES_NAME = "mistakes.png"
EXAMPLES_NAME = "examples.png"


def append_metrics(path: Path, row: Mapping[str, float]) -> None:
    """Add one epoch's row to the file; a row is written by a single call, so a kill never leaves half of one behind."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file, one for each finished epoch, in order.

    Raises:
        OSError, ValueError: there is no such file, or a line is not JSON.
    """
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Write a run's record, one JSON object."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
