"""Rows of the scoreboard with their speed-ups.

A row combines runs that differ only in their seed. Metrics of different hardware or different code are never averaged.
The host is only a label. Runs from a remote were not measured on this machine and have separate rows.

A speed-up needs two rows that differ in hardware and agree in all compared fields, code and library versions. Both must
have verified, requested hardware and real data.
"""

import json
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from pipeline.problems.results import merit
from pipeline.report.data.reading import Entry, Run
from pipeline.report.formats import Spread, hosts, is_fallback, plain
from pipeline.runs.metrics import compiling_epochs, epoch_seconds
from pipeline.runs.record import SKIPPED, names

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

_Run = TypeVar("_Run", bound=Entry)
_Name = TypeVar("_Name", bound=Hashable)


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


def facts(run: Entry, fields: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a run as data for JSON."""
    return {name: to_jsonable_python(getattr(run, name)) for name in fields}


def grouped(runs: Iterable[_Run], fields: Sequence[str]) -> list[list[_Run]]:
    """Group runs that agree in all of the fields. Groups and runs keep their order."""
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        # Some fields contain unhashable objects.
        groups.setdefault(json.dumps(facts(run, fields), sort_keys=True), []).append(run)
    return list(groups.values())


def scenarios(runs: Sequence[Run]) -> list[Row]:
    """Group runs into rows, in the order of the first run of each."""
    return [_row(group) for group in grouped(runs, ("made_from", "code", "fetched_from", *names(repeated=False)))]


def _row(runs: Sequence[Run]) -> Row:
    # A repetition on another host has the same accuracy, which must not count twice.
    distinct_runs = [*{run.fingerprint: run for run in reversed(runs)}.values()]
    # Of equal runs, the newest comes first.
    best_first = sorted(distinct_runs, key=lambda run: merit(run.problem, vars(run)))[::-1]
    return Row(
        run=best_first[(len(best_first) - 1) // 2],
        runs=sorted(runs, key=lambda run: run.seed),
        finished_at=runs[0].finished_at,
        epoch_seconds=mean_and_deviation([_epoch_seconds(run) for run in runs]),
        **{
            name: mean_and_deviation([getattr(run, name) for run in draws])
            for draws, metrics in ((distinct_runs, _SEED_METRICS), (runs, _SPEED_METRICS))
            for name in metrics
        },
    )


def _epoch_seconds(run: Run) -> float | None:
    compiling = compiling_epochs(run.model_dump(include={"segments", "epochs_restored"}))
    return epoch_seconds([dict(epoch) for epoch in run.curves], compiling)


def mean_and_deviation(values: Sequence[float | None]) -> Spread:
    """Return mean and sample standard deviation. Both are None if a value is missing or not finite.

    The mean of the remaining values would hide a run that diverged.
    """
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return Spread(None, None)
    try:
        mean = statistics.fmean(values)
        squares = math.fsum((value - mean) ** 2 for value in values)
    except OverflowError:
        return Spread(None, None)
    return Spread(mean, math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None)


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, each with its speed-up.

    The baseline is the newest comparable row on a CPU, or else the slowest row. The ratio depends neither on the number
    of old rows nor on the order of the runs.
    """
    comparable = [row for row in rows if not _exclusion_reason(row)]
    return [replace(row, speedup=_speedup(row, comparable)) for row in rows]


def differing_fields(row: Row, other: Row) -> list[str]:
    """Return the fields that comparable rows must share and these rows do not. Unknown values never agree."""
    values = ((name, getattr(row.run, name), getattr(other.run, name)) for name in (*names(compared=True), "code"))
    return [name for name, value, other_value in values if value is None or value != other_value]


def differing(facts: Sequence[Mapping[_Name, Any]]) -> list[_Name]:
    """Return the names of the facts that are not the same in all mappings. A missing fact is None."""
    return [
        name for name in dict.fromkeys(chain(*facts)) if any(other.get(name) != facts[0].get(name) for other in facts)
    ]


def field_label(name: str) -> str:
    """Return the label of a record field."""
    return _LABELS.get(name, name.replace("_", " "))


def _speedup(row: Row, fit: Sequence[Row]) -> Speedup:
    if reason := _exclusion_reason(row):
        return Speedup(None, reason)
    partners = [other for other in fit if _on_other_hardware(row, other)]
    if not partners:
        return Speedup(None, "no other hardware to compare with")
    nearest = min(partners, key=lambda other: len(differing_fields(row, other)))
    if differences := differing_fields(row, nearest):
        return Speedup(None, f"differs from {_row_name(nearest)} in {', '.join(map(field_label, differences))}")
    comparable = [other for other in fit if not differing_fields(row, other)]
    cpu_rows = [other for other in comparable if other.run.effective_device == "cpu"]
    slowest = min(comparable, key=lambda peer: (peer.examples_per_second.mean, peer.fingerprints[0]))
    by_age = sorted(cpu_rows, key=lambda peer: (datetime.fromisoformat(peer.finished_at), peer.fingerprints[0]))
    baseline = by_age[-1] if by_age else slowest
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
