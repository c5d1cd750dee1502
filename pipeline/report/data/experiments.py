"""Experiments: the best row, the newest run and its change for each."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.problems.results import merit
from pipeline.report.data.changes import changes
from pipeline.report.data.history import Entry
from pipeline.report.formats import Run
from pipeline.runs.record import FINISHED, is_stand_in


def experiments(
    rows: Sequence[Run], runs: Sequence[Run], entries: Sequence[Entry], current: Collection[str]
) -> list[dict[str, Any]]:
    """The experiments of the runs (newest first), the requested ones first, then by their newest run.

    Each has its `experiment`, `is_current`, `num_runs` (finished), `best` (first fingerprint of the best row on the
    requested data), `newest` (fingerprint of the last finished run), and its `change`. The last three may be None.
    """
    found = []
    for name in dict.fromkeys(run["experiment"] for run in runs):
        mine = [run for run in runs if run["experiment"] == name]
        finished = [run for run in mine if run["status"] == FINISHED]
        newest = finished[0] if finished else None
        changed = changes(entries, {(newest["fingerprint"], newest["finished_at"])}) if newest else []
        best = _best([row for row in rows if row["experiment"] == name])
        found.append(
            {
                "experiment": name,
                "is_current": any(run["fingerprint"] in current for run in mine),
                "num_runs": len(finished),
                "best": best["fingerprints"][0] if best else None,
                "newest": newest["fingerprint"] if newest else None,
                "change": changed[0] if changed else None,
            }
        )
    return sorted(found, key=lambda one: not one["is_current"])


def _best(rows: Sequence[Run]) -> Run | None:
    """The best row on the requested data by its ranking figure, of equals the newest. None without such a figure."""
    known = [row for row in rows if row["status"] == FINISHED and not is_stand_in(row) and _merit(row) > -math.inf]
    newest = max(known, key=_moment, default=None)
    # Rows of several problems have no common figure.
    comparable = [row for row in known if row["problem"] == newest["problem"]]
    return max(comparable, key=lambda row: (_merit(row), _moment(row)), default=None)


def _merit(row: Run) -> float:
    return merit(row["problem"], {name: row[name]["mean"] for name in ("val_accuracy", "val_loss")})


def _moment(row: Run) -> datetime:
    return datetime.fromisoformat(row["finished_at"])


def have_curves(drawn: Sequence[Run]) -> bool:
    """One epoch is a point, not a curve."""
    return any(len(run["curves"]) > 1 for run in drawn)


def series_of(scenario: Mapping[str, Any], drawn: Sequence[Run]) -> list[int]:
    """The indices of a scoreboard row's runs among the drawn ones."""
    mine = set(zip(scenario["fingerprints"], scenario["hostnames"], strict=True))
    return [place for place, run in enumerate(drawn) if (run["fingerprint"], run["hostname"]) in mine]
