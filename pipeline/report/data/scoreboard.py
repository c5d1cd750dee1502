"""Rows of the scoreboard with their speed-ups and ranks, and the best row and the latest change of each experiment.

A row combines runs that differ only in their seed. Metrics of different hardware or different code are never averaged.
The host is only a label. Runs from a remote were not measured on this machine and have separate rows.

A speed-up needs two rows that differ in hardware and agree in all compared fields, code and library versions. Both must
have verified, requested hardware and real data.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pipeline.problems.results import merit
from pipeline.report.data.history import Change, changes
from pipeline.report.data.reading import Entry, Run, grouped, split_counts
from pipeline.report.formats import Spread, hosts, is_fallback, plain
from pipeline.runs.metrics import compiling_epochs, epoch_seconds
from pipeline.runs.record import FINISHED, SKIPPED, names

# Labels of fields that differ from their names.
_LABELS = {
    "computation_flags": "environment variables of computation",
    "content_digests": "dataset content",
    "global_batch_size": "global batch",
    "replicas": "requested replicas",
    "requested_jit_compile": "requested XLA",
    "code": "code or library versions",
}
# Metrics that depend on the seed but not on the machine.
_SEED_METRICS = ("test_accuracy", "validation_accuracy", "test_loss", "test_tta_accuracy", "validation_tta_accuracy")
_SPEED_METRICS = ("train_seconds", "examples_per_second")


@dataclass(frozen=True)
class Speedup:
    """Ratio of the examples per second of two rows. ``words`` describes the baseline, or the reason without a ratio."""

    ratio: float | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """Runs that share all fields of the record that are not ``repeated``, by seed.

    ``run`` stands for the row. Its ranking metric is the median, or the better one of two runs. ``finished_at`` is the
    end of the newest run. ``epoch_seconds`` excludes compiling epochs.
    """

    run: Run
    runs: list[Run]
    finished_at: str
    train_seconds: Spread
    examples_per_second: Spread
    epoch_seconds: Spread
    test_accuracy: Spread
    validation_accuracy: Spread
    test_loss: Spread
    test_tta_accuracy: Spread
    validation_tta_accuracy: Spread
    speedup: Speedup | None = None

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs. A run that was repeated on another host has its seed twice."""
        return [run.seed for run in self.runs]

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the runs."""
        return [run.fingerprint for run in self.runs]


def scenarios(runs: Sequence[Run]) -> list[Row]:
    """Group runs into rows, in the order of the first run of each, with their speed-ups.

    The baseline is the newest comparable row on a CPU, or else the slowest row. The ratio depends neither on the number
    of old rows nor on the order of the runs.
    """
    rows = [_row(group) for group in grouped(runs, ("made_from", "code", "fetched_from", *names(repeated=False)))]
    comparable = [row for row in rows if not _exclusion_reason(row)]
    return [replace(row, speedup=_speedup(row, comparable)) for row in rows]


def _row(runs: Sequence[Run]) -> Row:
    # A repetition on another host has the same accuracy, which must not count twice.
    distinct_runs = [*{run.fingerprint: run for run in reversed(runs)}.values()]
    # Of equal runs, the newest comes first.
    best_first = sorted(distinct_runs, key=lambda run: merit(run.problem, vars(run)))[::-1]
    compiling = [(run, compiling_epochs(run.model_dump(include={"segments", "epochs_restored"}))) for run in runs]
    return Row(
        run=best_first[(len(best_first) - 1) // 2],
        runs=sorted(runs, key=lambda run: run.seed),
        finished_at=runs[0].finished_at,
        epoch_seconds=Spread.of([epoch_seconds([*map(dict, run.curves)], epochs) for run, epochs in compiling]),
        **{name: Spread.of([getattr(run, name) for run in distinct_runs]) for name in _SEED_METRICS},
        **{name: Spread.of([getattr(run, name) for run in runs]) for name in _SPEED_METRICS},
    )


def _differing_fields(row: Row, other: Row) -> list[str]:
    """Return the fields that comparable rows must share and these rows do not. Unknown values never agree."""
    values = ((name, getattr(row.run, name), getattr(other.run, name)) for name in (*names(compared=True), "code"))
    return [name for name, value, other_value in values if value is None or value != other_value]


def field_label(name: str) -> str:
    """Return the label of a record field."""
    return _LABELS.get(name, name.replace("_", " "))


def _speedup(row: Row, fit: Sequence[Row]) -> Speedup:
    if reason := _exclusion_reason(row):
        return Speedup(None, reason)
    partners = [other for other in fit if _on_other_hardware(row, other)]
    if not partners:
        return Speedup(None, "no other hardware to compare with")
    nearest = min(partners, key=lambda other: len(_differing_fields(row, other)))
    if differences := _differing_fields(row, nearest):
        return Speedup(None, f"differs from {_row_name(nearest)} in {', '.join(map(field_label, differences))}")
    comparable = [other for other in fit if not _differing_fields(row, other)]
    cpu_rows = [other for other in comparable if other.run.effective_device == "cpu"]
    slowest = min(comparable, key=lambda peer: (peer.examples_per_second.mean, peer.fingerprints[0]))
    baseline = max(cpu_rows, key=lambda peer: (_moment(peer), peer.fingerprints[0]), default=slowest)
    if not _on_other_hardware(row, baseline):
        return Speedup(None, "baseline" if row is baseline else "same hardware as the baseline")
    ratio = row.examples_per_second.mean / baseline.examples_per_second.mean
    return Speedup(ratio, f"of {_row_name(baseline)}")


def _on_other_hardware(row: Row, other: Row) -> bool:
    """Return whether two rows are known to differ in hardware."""
    pairs = [(getattr(row.run, name), getattr(other.run, name)) for name in names("hardware")]
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _exclusion_reason(row: Row) -> str:
    run = row.run
    reasons = {
        "skipped": run.status == SKIPPED,
        "placeholder data": run.dataset == "synthetic",
        "fallback: not the requested device": is_fallback(run),
        "device not verified": not run.device_verified,
        "no throughput was measured": (row.examples_per_second.mean or 0) <= 0,
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _row_name(row: Row) -> str:
    return f"{plain(row.run.effective_device)} on {hosts(row.runs)} ({plain(row.fingerprints[0])[:8]})"


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
