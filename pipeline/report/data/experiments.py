"""Experiments: what a report knows of each, side by side: its best row, its newest run, and what that changed."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.problems.judged import merit
from pipeline.report.data.changes import changes
from pipeline.report.data.history import Entry
from pipeline.runs.record import FINISHED, is_stand_in

_MAX_DRAWN = 24


def experiments(
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Mapping[str, Any]],
    entries: Sequence[Entry],
    current: Collection[str],
) -> list[dict[str, Any]]:
    """The experiments of the runs (newest first), the requested ones first, then by their newest run.

    Each has its `experiment`, `is_current`, `num_runs` (finished), `best` (first fingerprint of the best row on the
    requested data), `newest` (fingerprint of the last finished run), and its `change`. The last three may be None.
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
    """The best row on the requested data by its ranking figure, of equals the newest. None without such a figure.

    Of several problems, that of the newest row counts.
    """
    known = [row for row in rows if row["status"] == FINISHED and not is_stand_in(row) and _mean_merit(row) > -math.inf]
    newest = max(known, key=_moment, default=None)
    comparable = [row for row in known if row["problem"] == newest["problem"]]
    return max(comparable, key=lambda row: (_mean_merit(row), _moment(row)), default=None)


def _mean_merit(row: Mapping[str, Any]) -> float:
    return merit(row["problem"], {name: row[name]["mean"] for name in ("val_accuracy", "val_loss")})


def _moment(row: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(row["finished_at"])


def drawn_runs(runs: Sequence[Mapping[str, Any]], current: Collection[str]) -> list[Mapping[str, Any]]:
    """The finished runs whose curves are drawn, the requested ones first, then the newest; the first few at once.

    Only runs of the requested experiments: curves of two experiments are not to be compared.
    """
    finished = [run for run in runs if run["status"] == FINISHED]
    asked_for = {run["experiment"] for run in finished if run["fingerprint"] in current}
    mine = [run for run in finished if not asked_for or run["experiment"] in asked_for]
    return sorted(mine, key=lambda run: run["fingerprint"] not in current)[:_MAX_DRAWN]


def have_curves(drawn: Sequence[Mapping[str, Any]]) -> bool:
    """One epoch is a point, not a curve."""
    return any(len(run["curves"]) > 1 for run in drawn)


def series_of(scenario: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places among the drawn runs of those that a row of the scoreboard stands for."""
    mine = set(zip(scenario["fingerprints"], scenario["hostnames"], strict=True))
    return [place for place, run in enumerate(drawn) if (run["fingerprint"], run["hostname"]) in mine]
