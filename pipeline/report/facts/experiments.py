"""Experiments: what a report knows of each, side by side: its best row, its newest run, and what that changed."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.report.facts.changes import changes
from pipeline.report.facts.history import Entry
from pipeline.report.facts.reading import is_stand_in
from pipeline.runs.record import FINISHED


def experiments(
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    entries: Sequence[Entry],
    current: Collection[str],
) -> list[dict[str, Any]]:
    """The experiments that the runs belong to, those asked for first, then by their newest run.

    Args:
        rows: the scenarios of the runs.
        runs: the newest first.
        entries: of the history.
        current: fingerprints of the runs asked for.

    Returns:
        For each its name, `experiment`; `is_current`; `num_runs`, the finished; `best`, the first fingerprint of the
        row with the greatest mean accuracy on the data asked for; `newest`, the fingerprint of the last run that
        finished; and the `change` of that run, as changes.changes gives it. The last three may be None.
    """
    names = dict.fromkeys(run["experiment"] for run in runs)
    asked_for = {run["experiment"] for run in runs if run["fingerprint"] in current}
    found = [_experiment(name, rows, runs, entries, name in asked_for) for name in names]
    return sorted(found, key=lambda one: not one["is_current"])


def _experiment(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    entries: Sequence[Entry],
    is_current: bool,
) -> dict[str, Any]:
    finished = [run for run in runs if run["experiment"] == name and run["status"] == FINISHED]
    newest = finished[0] if finished else None
    best = best_row([row for row in rows if row["experiment"] == name])
    changed = changes(entries, {(newest["fingerprint"], newest["finished_at"])}) if newest else []
    return {
        "experiment": name,
        "is_current": is_current,
        "num_runs": len(finished),
        "best": best["fingerprints"][0] if best else None,
        "newest": newest["fingerprint"] if newest else None,
        "change": changed[0] if changed else None,
    }


def best_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of rows that were measured on the data asked for, the one with the greatest mean accuracy; of equals the newest.

    None where no row has an accuracy.
    """
    known = [
        row
        for row in rows
        if row["status"] == FINISHED and not is_stand_in(row) and row["val_accuracy"]["mean"] is not None
    ]
    return max(known, key=_by_accuracy, default=None)


def _by_accuracy(row: Mapping[str, Any]) -> tuple[float, datetime]:
    return row["val_accuracy"]["mean"], datetime.fromisoformat(row["finished_at"])
