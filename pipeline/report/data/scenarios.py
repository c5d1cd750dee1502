"""Rows of the scoreboard: runs that differ in their seed alone, their speed-ups, and their times by batch.

Metrics of two kinds of hardware or of two versions of the code are never averaged. The host is a label. Runs from a
remote were not measured here and have rows of their own.

A speed-up needs two rows that agree in all compared fields, code and library versions, that differ in hardware, and
that were measured on verified, requested hardware and on real data.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from pydantic import BaseModel

from pipeline.report.data.reading import Entry, Repetition, Resumption, Run
from pipeline.report.formats import Spread, hosts, is_fallback, plain
from pipeline.runs.metrics import compiling_epochs, epoch_seconds
from pipeline.runs.record import FINISHED, SKIPPED, names

# Fields whose names are not their words.
_WORDS = {
    "computation_flags": "environment variables of computation",
    "content_digests": "dataset content",
    "global_batch_size": "global batch",
    "replicas": "requested replicas",
    "requested_jit_compile": "requested XLA",
    "code": "code or library versions",
}
# What comes of a seed, whatever the machine.
_OF_A_DRAW = ("test_accuracy", "validation_accuracy", "test_loss", "test_tta_accuracy", "validation_tta_accuracy")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Speedup:
    """The ``ratio`` of the examples per second of two rows, and ``words``, the reason if there is no ratio.

    ``baseline``: the first fingerprint of the row that it is compared with.
    """

    ratio: float | None
    baseline: str | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """Runs that share all fields of the record that are not ``repeated``, by seed. ``run``: the first one requested.

    ``epoch_seconds`` and ``step_seconds`` leave compiling epochs out.
    """

    run: Run
    seeds: list[int]
    fingerprints: list[str]
    hostnames: list[str | None]
    repetitions: list[Repetition | None]
    resumed: list[Resumption]
    train_seconds: Spread
    examples_per_second: Spread
    epoch_seconds: Spread
    step_seconds: Spread
    test_accuracy: Spread
    validation_accuracy: Spread
    test_loss: Spread
    test_tta_accuracy: Spread
    validation_tta_accuracy: Spread
    speedup: Speedup | None = None

    def to_json(self) -> dict[str, Any]:
        """The shared fields of the runs, and the others."""
        own = {name: plain_data(value) for name, value in vars(self).items() if name != "run"}
        return {**facts(self.run, (*_shared(), "mismatch", "finished_at")), **own}


@dataclass(frozen=True)
class BatchLine:
    """Rows of one device that differ in their batch alone, the newest first."""

    rows: list[Row]

    @property
    def by_batch(self) -> list[Row]:
        """The rows, the smallest batch first."""
        return sorted(self.rows, key=lambda row: row.run.global_batch_size)

    @property
    def run(self) -> Run:
        """What its runs share, apart from the batch."""
        return self.rows[0].run

    @property
    def hostnames(self) -> list[str | None]:
        """The hosts of its runs."""
        return [host for row in self.rows for host in row.hostnames]

    def to_json(self) -> dict[str, Any]:
        """The shared fields, and ``points`` by batch."""
        of_a_point = ("steps_per_epoch", "epoch_seconds", "step_seconds", "seeds", "fingerprints")
        points = [
            {name: data[name] for name in ("global_batch_size", *of_a_point)}
            for data in (row.to_json() for row in self.by_batch)
        ]
        shared = facts(self.run, (*_of_a_line(), "mismatch", "finished_at"))
        return {**shared, "hostnames": self.hostnames, "points": points}


@dataclass(frozen=True)
class BatchTable:
    """Times by batch of rows that differ in device and batch alone. The line with most batches is the first."""

    lines: list[BatchLine]

    @property
    def run(self) -> Run:
        """What its runs share, apart from device and batch."""
        return self.lines[0].run

    @property
    def has_times(self) -> bool:
        """Whether any time was measured."""
        return any(row.epoch_seconds.mean is not None for line in self.lines for row in line.rows)

    def to_json(self) -> dict[str, Any]:
        """The shared fields and the lines."""
        return {**facts(self.run, _of_a_table()), "lines": [line.to_json() for line in self.lines]}


def plain_data(value: Any) -> Any:
    """A value of a report as data for JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [plain_data(one) for one in value]
    return asdict(value) if isinstance(value, Spread | Speedup) else value


def facts(run: Entry, fields: Iterable[str]) -> dict[str, Any]:
    """These fields of a run as data for JSON."""
    return {name: plain_data(getattr(run, name)) for name in fields}


def grouped(
    items: Iterable[_Item], fields: Sequence[str], run_of: Callable[[_Item], Any] = lambda item: item
) -> list[list[_Item]]:
    """Items whose runs agree in all the fields named, group by group, each in its order."""
    groups: dict[str, list[_Item]] = {}
    for item in items:
        # An object in a field cannot be a key of a dict.
        groups.setdefault(json.dumps(facts(run_of(item), fields), sort_keys=True), []).append(item)
    return list(groups.values())


def grouped_rows(rows: Iterable[Row], fields: Sequence[str]) -> list[list[Row]]:
    """Rows whose runs agree in all the fields named."""
    return grouped(rows, fields, attrgetter("run"))


def scenarios(runs: Sequence[Run]) -> list[Row]:
    """Group runs into rows, in the order of the first run of each."""
    return [_row(group) for group in grouped(runs, _shared())]


def _shared() -> tuple[str, ...]:
    """The fields that the runs of a row share."""
    return ("made_from", "code", "fetched_from", *names(repeated=False))


def _of_a_line() -> list[str]:
    # Steps and the fastest computation depend on the batch, so they do not make another line.
    return [name for name in _shared() if name not in ("global_batch_size", *names("computation", compared=False))]


def _of_a_table() -> list[str]:
    return [name for name in names(compared=True) if name != "global_batch_size"]


def _row(runs: Sequence[Run]) -> Row:
    by_seed = sorted(runs, key=lambda run: run.seed)
    # A run repeated on another host is measured anew but computes the same: no second draw of its accuracy.
    once = {run.fingerprint: run for run in reversed(runs)}.values()
    epochs = [_epoch_seconds(run) for run in runs]
    steps = [
        seconds / run.steps_per_epoch if seconds is not None and run.steps_per_epoch else None
        for seconds, run in zip(epochs, runs, strict=True)
    ]
    return Row(
        run=runs[0],
        seeds=[run.seed for run in by_seed],
        fingerprints=[run.fingerprint for run in by_seed],
        hostnames=[run.hostname for run in by_seed],
        repetitions=[run.repetition for run in by_seed],
        resumed=[one for run in runs for one in run.resumed],
        epoch_seconds=mean_and_deviation(epochs),
        step_seconds=mean_and_deviation(steps),
        **{name: mean_and_deviation([getattr(run, name) for run in once]) for name in _OF_A_DRAW},
        **{
            name: mean_and_deviation([getattr(run, name) for run in runs])
            for name in ("train_seconds", "examples_per_second")
        },
    )


def _epoch_seconds(run: Run) -> float | None:
    compiling = compiling_epochs(run.model_dump(include={"segments", "epochs_restored"}))
    return epoch_seconds([dict(epoch) for epoch in run.curves], compiling)


def mean_and_deviation(values: Sequence[float | None]) -> Spread:
    """Both None where a value is missing or not finite: the mean of the rest would flatter a run that diverged."""
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return Spread(None, None)
    try:
        deviation = float(statistics.stdev(values)) if len(values) > 1 else None
        return Spread(float(statistics.mean(values)), deviation)
    except OverflowError:
        return Spread(None, None)


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with its speed-up.

    The baseline is the newest comparable row on a CPU, else the slowest: the ratio does not grow with the number of
    old rows, nor depend on the order of the runs.
    """
    fit = [row for row in rows if not _unfit(row)]
    return [replace(row, speedup=_speedup(row, fit)) for row in rows]


def differing(one: Row, other: Row) -> list[str]:
    """The fields that comparable rows must share and these do not. An unknown value is not shared."""
    values = ((name, getattr(one.run, name), getattr(other.run, name)) for name in (*names(compared=True), "code"))
    return [name for name, mine, others in values if mine is None or mine != others]


def words_for(name: str) -> str:
    """A field of the record in words."""
    return _WORDS.get(name, name.replace("_", " "))


def _speedup(row: Row, fit: Sequence[Row]) -> Speedup:
    if unfit := _unfit(row):
        return Speedup(None, None, unfit)
    others = [other for other in fit if _on_other_hardware(row, other)]
    if not others:
        return Speedup(None, None, "no other hardware to compare with")
    nearest = min(others, key=lambda other: len(differing(row, other)))
    if differ := differing(row, nearest):
        return Speedup(None, None, f"differs from {_row_name(nearest)} in {', '.join(map(words_for, differ))}")
    comparable = [other for other in fit if not differing(row, other)]
    on_cpu = [other for other in comparable if other.run.effective_device == "cpu"]
    if on_cpu:
        baseline = max(on_cpu, key=lambda one: (datetime.fromisoformat(one.run.finished_at), one.fingerprints[0]))
    else:
        baseline = min(comparable, key=lambda one: (one.examples_per_second.mean, one.fingerprints[0]))
    if row is baseline:
        return Speedup(None, None, "baseline")
    if not _on_other_hardware(row, baseline):
        return Speedup(None, None, "same hardware as the baseline")
    ratio = row.examples_per_second.mean / baseline.examples_per_second.mean
    return Speedup(ratio, baseline.fingerprints[0], f"of {_row_name(baseline)}")


def _on_other_hardware(one: Row, other: Row) -> bool:
    """Whether two rows are known to differ in hardware."""
    pairs = [(getattr(one.run, name), getattr(other.run, name)) for name in names("hardware")]
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _unfit(row: Row) -> str:
    """The reason why the row cannot be compared. Empty if it can."""
    run, rate = row.run, row.examples_per_second.mean
    if run.status == SKIPPED:
        return "skipped"
    if run.dataset == "synthetic":
        return "placeholder data"
    if is_fallback(run):
        return "fallback: not the requested device"
    if not run.device_verified:
        return "device not verified"
    return "" if rate is not None and rate > 0 else "no throughput was measured"


def _row_name(row: Row) -> str:
    return f"{plain(row.run.effective_device)} on {hosts(row.hostnames)} ({plain(row.fingerprints[0])[:8]})"


def batch_sizes(rows: Sequence[Row]) -> list[BatchTable]:
    """A table for each group of rows with several batches that differ in their device and batch alone."""
    finished = [row for row in rows if row.run.status == FINISHED and row.run.content_digests is not None]
    tables = []
    for group in grouped_rows(finished, _of_a_table()):
        if len({row.run.global_batch_size for row in group}) > 1:
            lines = [BatchLine(line) for line in grouped_rows(group, _of_a_line())]
            tables.append(BatchTable(sorted(lines, key=lambda line: -len(line.rows))))
    return tables
