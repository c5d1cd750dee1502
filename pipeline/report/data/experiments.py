"""Best row, newest run and latest change of each experiment."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.problems.results import merit
from pipeline.report.data.changes import Change, changes
from pipeline.report.data.reading import Entry, Run, split_counts
from pipeline.report.data.scenarios import Row
from pipeline.runs.record import FINISHED, SKIPPED


@dataclass(frozen=True)
class Experiment:
    """An experiment. ``best`` is its best row on the requested data."""

    name: str
    is_current: bool
    best: Row | None
    newest: Run | None
    change: Change | None


def experiments(
    rows: Sequence[Row], runs: Sequence[Run], groups: Sequence[Sequence[Entry]], current: Collection[str]
) -> list[Experiment]:
    """Return the experiments of the runs, requested experiments first, then those with the newest runs.

    ``runs`` start with the newest. ``groups`` are the ``comparable_groups`` of the history.
    """
    summaries = []
    for name in dict.fromkeys(run.experiment for run in runs):
        matching = [run for run in runs if run.experiment == name]
        newest = next((run for run in matching if run.status == FINISHED), None)
        changed = changes(groups, {(newest.fingerprint, newest.finished_at)}) if newest else []
        is_current = any(run.fingerprint in current for run in matching)
        best = next(iter(ranked([row for row in rows if row.run.experiment == name])[0]), None)
        summaries.append(Experiment(name, is_current, best, newest, changed[0] if changed else None))
    return sorted(summaries, key=lambda experiment: not experiment.is_current)


def best_run(summaries: Sequence[Experiment]) -> Run | None:
    """Return the run of the best row of the first requested experiment that has one, or None.

    Without a request, all experiments count.
    """
    requested = [experiment for experiment in summaries if experiment.is_current] or summaries
    return next((experiment.best.run for experiment in requested if experiment.best), None)


def ranked(rows: Sequence[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """Return the rows with a ranking metric on the requested data, best first, and two lists of unranked rows.

    The first list has rows with other test data than the newest row, or with a loss in other units. The second one has
    the rest, skipped rows last.
    """
    with_metric = [
        row for row in rows if row.run.status == FINISHED and not row.run.is_placeholder and _merit(row) > -math.inf
    ]
    newest = max(with_metric, key=_moment, default=None)
    # Different problems have no common metric.
    same_problem = [row for row in with_metric if row.run.problem == newest.run.problem]
    newest = max((row for row in same_problem if _digest(row.run)), key=_moment, default=newest)
    other_data = [row for row in same_problem if _is_other(row.run, newest.run)]
    comparable = [row for row in same_problem if not _is_other(row.run, newest.run)]
    best_first = sorted(comparable, key=lambda row: (_merit(row), _moment(row)), reverse=True)
    ids = set(map(id, same_problem))
    rest = [row for row in rows if id(row) not in ids]
    return best_first, other_data, sorted(rest, key=lambda row: row.run.status == SKIPPED)


def has_other_data(run: Run, other: Run, split: str = "test") -> bool:
    """Return whether two runs of a problem are known to differ in the examples of a split."""
    if _digest(run, split) in (None, _digest(other, split)):
        return False
    stored = "encoding", "image_size", "resize", "store_side"
    storages = [(one.input_shape, *(getattr(one.records, name, None) for name in stored)) for one in (run, other)]
    # Digests of the same images differ between encodings and sizes. Their number does not.
    sizes = [one.test_examples if split == "test" else split_counts(one).get(split) for one in (run, other)]
    return storages[0] == storages[1] or (len(run.input_shape or ()) > 1 and sizes[0] != sizes[1])


def loss_units(run: Run) -> tuple[str, ...]:
    """Return the standard deviations of the train split in which a regression states its loss. Empty for others."""
    values = getattr(run.evaluation, "values", ()) if run.problem == "regression" else ()
    return tuple(f"{value.deviation or 0:.6g}" for value in values)


def _is_other(run: Run, other: Run) -> bool:
    return has_other_data(run, other) or loss_units(run) != loss_units(other)


def _digest(run: Run, split: str = "test") -> str | None:
    return (run.content_digests or {}).get(split)


def _merit(row: Row) -> float:
    return merit(row.run.problem, {"test_accuracy": row.test_accuracy.mean, "test_loss": row.test_loss.mean})


def _moment(row: Row) -> datetime:
    return datetime.fromisoformat(row.finished_at)
