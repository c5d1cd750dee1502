"""Best row, newest run and latest change of each experiment."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.problems.results import merit
from pipeline.report.data.changes import Change, changes
from pipeline.report.data.reading import Entry, Run, split_counts
from pipeline.report.data.scenarios import Row
from pipeline.runs.record import FINISHED, SKIPPED


@dataclass(frozen=True)
class Experiment:
    """An experiment with its number of finished runs. ``best`` is its best row on the requested data."""

    name: str
    is_current: bool
    num_runs: int
    best: Row | None
    newest: Run | None
    change: Change | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with fingerprints for the row and the run."""
        return {
            "experiment": self.name,
            "is_current": self.is_current,
            "num_runs": self.num_runs,
            "best": self.best and self.best.fingerprints[0],
            "newest": self.newest and self.newest.fingerprint,
            "change": self.change and self.change.to_json(),
        }


def experiments(
    rows: Sequence[Row], runs: Sequence[Run], groups: Sequence[Sequence[Entry]], current: Collection[str]
) -> list[Experiment]:
    """Return the experiments of the runs, requested experiments first, then those with the newest runs.

    ``runs`` start with the newest. ``groups`` are the ``comparable_groups`` of the history.
    """
    summaries = []
    for name in dict.fromkeys(run.experiment for run in runs):
        matching = [run for run in runs if run.experiment == name]
        finished = [run for run in matching if run.status == FINISHED]
        newest = finished[0] if finished else None
        changed = changes(groups, {(newest.fingerprint, newest.finished_at)}) if newest else []
        is_current = any(run.fingerprint in current for run in matching)
        best = _best([row for row in rows if row.run.experiment == name])
        summaries.append(Experiment(name, is_current, len(finished), best, newest, changed[0] if changed else None))
    return sorted(summaries, key=lambda experiment: not experiment.is_current)


def best_run(summaries: Sequence[Experiment]) -> Run | None:
    """Return the run of the best row of the first requested experiment that has one, or None.

    Without a request, all experiments count.
    """
    requested = [experiment for experiment in summaries if experiment.is_current] or summaries
    return next((experiment.best.run for experiment in requested if experiment.best), None)


def _best(rows: Sequence[Row]) -> Row | None:
    """Return the row with the best ranking metric on the requested data, the newest of equals, or None."""
    return next(iter(ranked(rows)[0]), None)


def ranked(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows with a ranking metric on the requested data, best first, and two lists of unranked rows.

    The first list has rows with other test data than the newest row. The second one has the rest, skipped rows last.
    """
    with_metric = [
        row for row in rows if row.run.status == FINISHED and not row.run.is_placeholder and _merit(row) > -math.inf
    ]
    newest = max(with_metric, key=_moment, default=None)
    # Different problems have no common metric.
    same_problem = [row for row in with_metric if row.run.problem == newest.run.problem]
    newest = max(filter(_test_digest, same_problem), key=_moment, default=newest)
    other_data = [row for row in same_problem if has_other_data(row.run, newest.run)]
    comparable = [row for row in same_problem if not has_other_data(row.run, newest.run)]
    best_first = sorted(comparable, key=lambda row: (_merit(row), _moment(row)), reverse=True)
    ids = set(map(id, same_problem))
    rest = [row for row in rows if id(row) not in ids]
    return best_first, other_data, sorted(rest, key=lambda row: row.run.status == SKIPPED)


def has_other_data(run: Run, other: Run, split: str = "test") -> bool:
    """Return whether two runs of a problem are known to differ in the examples of a split."""
    digests = [(one.content_digests or {}).get(split) for one in (run, other)]
    if not digests[0] or digests[0] == digests[1]:
        return False
    # Digests of the same images differ between encodings and sizes. Their number does not.
    is_image = len(run.input_shape or ()) > 1
    return _storage(run) == _storage(other) or (is_image and _size(run, split) != _size(other, split))


def _size(run: Run, split: str) -> int | None:
    return run.test_examples if split == "test" else split_counts(run).get(split)


def _storage(run: Run) -> tuple[Any, ...]:
    stored = run.records
    return run.input_shape, stored and (stored.encoding, stored.image_size, stored.resize, stored.store_side)


def _test_digest(row: Row) -> str | None:
    return (row.run.content_digests or {}).get("test")


def _merit(row: Row) -> float:
    return merit(row.run.problem, {"test_accuracy": row.test_accuracy.mean, "test_loss": row.test_loss.mean})


def _moment(row: Row) -> datetime:
    return datetime.fromisoformat(row.finished_at)
