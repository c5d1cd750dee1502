"""Batch sizes: how long an epoch and a step take on each device, by global batch, among comparable rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.facts.published import by_batch
from pipeline.report.facts.scenarios import grouped, shared_names
from pipeline.runs.record import FINISHED, names


def _compared() -> list[str]:
    return [name for name in names(compared=True) if name != "global_batch_size"]


def _of_a_line() -> list[str]:
    # What follows from the batch does not make another line: its steps, and what was found the best way to compute it.
    of_a_batch = ("global_batch_size", *names("computation", compared=False))
    return [name for name in shared_names() if name not in of_a_batch]


def batch_sizes(
    scenarios: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """One table for each group of rows that may be compared but for their batch, where it holds several batches.

    Returns:
        For each the fields that its rows share, and `lines`: one for each device (and whatever else tells rows apart),
        with its own fields and `points` by batch, each of `global_batch_size`, `steps_per_epoch`, `epoch_seconds`,
        `step_seconds`, `seeds` and `fingerprints`; and `published`, lines of other devices, see published.by_batch.
    """
    finished = [row for row in scenarios if row["status"] == FINISHED and row["content_digests"] is not None]
    tables = [rows for rows in grouped(finished, _compared()) if len({row["global_batch_size"] for row in rows}) > 1]
    made = [_table(rows) for rows in tables]
    return [{**table, "published": by_batch(published, table)} for table in made]


def shown_tables(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables by batch of the experiments asked for, where any is: a page about one is not about all."""
    current = {one["experiment"] for one in report["experiments"] if one["is_current"]}
    return [table for table in report["batch_sizes"] if not current or table["experiment"] in current]


def has_times(table: Mapping[str, Any]) -> bool:
    """Whether a table by batch has any time to show."""
    return any(point["epoch_seconds"]["mean"] is not None for line in table["lines"] for point in line["points"])


def _table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **{name: rows[0][name] for name in _compared()},
        # The longest first: they are what a sweep was made for, and what is drawn where there is room for few.
        "lines": sorted((_line(line) for line in grouped(rows, _of_a_line())), key=lambda line: -len(line["points"])),
    }


def _line(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    of_a_point = ("global_batch_size", "steps_per_epoch", "epoch_seconds", "step_seconds", "seeds", "fingerprints")
    points = [{name: row[name] for name in of_a_point} for row in rows]
    return {
        **{name: rows[0][name] for name in (*_of_a_line(), "mismatch", "finished_at")},
        "hostnames": [host for row in rows for host in row["hostnames"]],
        "points": sorted(points, key=lambda point: point["global_batch_size"]),
    }
