"""Series: which runs, and which of their rows, are drawn where there are too many to draw all."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.runs.record import FINISHED

_MAX_DRAWN = 24


def drawn_runs(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs that can be drawn, those asked for first, then the newest; the first few are drawn at once.

    Where runs are asked for, those of their experiments alone: curves of two experiments are not to be compared.
    """
    finished = [run for run in report["runs"] if run["status"] == FINISHED]
    current = {run["experiment"] for run in finished if run["fingerprint"] in report["current"]}
    mine = [run for run in finished if not current or run["experiment"] in current]
    return sorted(mine, key=lambda run: run["fingerprint"] not in report["current"])[:_MAX_DRAWN]


def have_curves(drawn: Sequence[Mapping[str, Any]]) -> bool:
    """One epoch is a point, not a curve."""
    return any(len(run["curves"]) > 1 for run in drawn)


def series_of(scenario: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places among the drawn runs of those that a row of the scoreboard stands for."""
    mine = set(zip(scenario["fingerprints"], scenario["hostnames"], strict=True))
    return [place for place, run in enumerate(drawn) if (run["fingerprint"], run["hostname"]) in mine]


def spread(rows: Sequence[Any], limit: int = 100) -> list[Any]:
    """At most `limit` of the rows, evenly spaced, the first and the last among them."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (limit - 1))] for place in range(limit)]
