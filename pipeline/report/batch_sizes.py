"""Batch sizes: how long an epoch and a step take on each device, by global batch, among comparable rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.comparison import COMPARED
from pipeline.report.scenarios import SHARED, grouped
from pipeline.runs.record import FINISHED

_COMPARED = [name for name in COMPARED if name != "global_batch_size"]
# What follows from the batch does not make another line: its steps, and what was found the best way to compute it.
_OF_A_BATCH = ("global_batch_size", "steps_per_epoch", "jit_compile", "steps_per_execution", "input_in_memory")
_OF_A_LINE = [name for name in SHARED if name not in _OF_A_BATCH]


def batch_sizes(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One table for each group of rows that may be compared but for their batch, where it holds several batches.

    Returns:
        For each the fields that its rows share, and `lines`: one for each device (and whatever else tells rows apart),
        with its own fields and `points` by batch, each of `global_batch_size`, `steps_per_epoch`, `epoch_seconds`,
        `step_seconds`, `seeds` and `fingerprints`.
    """
    finished = [row for row in scenarios if row["status"] == FINISHED and row["content_digests"] is not None]
    tables = [rows for rows in grouped(finished, _COMPARED) if len({row["global_batch_size"] for row in rows}) > 1]
    return [_table(rows) for rows in tables]


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **{name: rows[0][name] for name in _COMPARED},
        # The longest first: they are what a sweep was made for, and what is drawn where there is room for few.
        "lines": sorted((_line(line) for line in grouped(rows, _OF_A_LINE)), key=lambda line: -len(line["points"])),
    }


def _line(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("global_batch_size", "steps_per_epoch", "epoch_seconds", "step_seconds", "seeds", "fingerprints")
    points = [{name: row[name] for name in names} for row in rows]
    return {
        **{name: rows[0][name] for name in (*_OF_A_LINE, "mismatch", "finished_at")},
        "points": sorted(points, key=lambda point: point["global_batch_size"]),
    }
