"""History of all reported runs of a storage root, and the changes of the newest runs, tested against noise.

The log has a JSON object per line, the record of a run without its evidence. A later line about the same run replaces
an earlier one. Runs are comparable if they share the hardware and all compared fields of the record. An unknown value
equals no other value.

Noise is the pooled standard deviation of runs that differ only in their seed, or else the spread of earlier runs.
Student's t accounts for the small number of runs. Repeated results of other code add degrees of freedom but no draws.
The noise of an accuracy is at least the sampling error of the test split. At most 1 in 20 changes between equal runs is
reported (by simulation). Throughput is judged only if the receipt's probe shows that the machine's speed differs by
less than the noise.
"""

import json
import math
import os
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from scipy.special import ndtri, stdtr

from pipeline.errors import UnreadableArtifactError
from pipeline.problems.results import results_of
from pipeline.report.data import reading
from pipeline.report.data.reading import Entry, facts, grouped, read_or_none
from pipeline.report.formats import Spread, number
from pipeline.runs import record
from pipeline.runs.validation import checked

HISTORY_NAME = "history.jsonl"
#: Largest change, in standard deviations, that counts as noise. Between equal runs, 1 change in 20 is larger.
NOISE_SIGMA = 1.96
#: Fewest degrees of freedom for an estimate of noise. With 1, only a change 13 times as large would be significant.
MIN_DEGREES_OF_FREEDOM = 2

_ACCURACY, _THROUGHPUT, _REFERENCE = "test_accuracy", "examples_per_second", "reference_flops_per_second"
_MAX_EARLIER_RUNS = 20
_Values = Sequence[float | None]
# The quantile of a smaller probability is infinite.
_MIN_PROBABILITY = 1e-300
_VERDICT_TEXTS = {
    "new": "no comparable earlier run",
    "unknown": "too few runs to estimate the noise",
    "noise": "within noise",
    "no reference": "not compared because the speed of the machine is unknown",
    "other speed": "not compared because the speed of the machine differs",
}


def read_history(path: Path) -> list[Entry]:
    """Read the entries of the log, each run once. Invalid lines are logged and skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    except PermissionError:
        problem = f"{path}: permission denied. Nothing can rebuild this list of removed runs."
        raise UnreadableArtifactError(problem, "Allow this user to read it (chmod u+rw, or chown).") from None
    parse = partial(checked, reading.Entry, path=path, remedy="")
    entries = (read_or_none(parse, text=line, label=f"line {number}") for number, line in enumerate(lines, start=1))
    return merged(filter(None, entries))


def merged(*logs: Iterable[Entry]) -> list[Entry]:
    """Return the entries of all logs, each run once, from the last log that contains it."""
    return list({age_order(entry): entry for log in logs for entry in log}.values())


def entries_of(runs: Iterable[Entry]) -> list[Entry]:
    """Return the entries of finished runs, oldest first."""
    return sorted((run for run in runs if run.status == record.FINISHED), key=age_order)


def append_history(path: Path, entries: Iterable[Entry], *, past: Iterable[Entry]) -> None:
    """Append the entries that ``past`` lacks, and flush them to disk."""
    new_entries = list(entries)
    # Formatting lines dominates the time for a long log.
    keys = {age_order(entry) for entry in new_entries}
    past_lines = {_line(entry) for entry in past if age_order(entry) in keys}
    lines = [line for line in map(_line, new_entries) if line not in past_lines]
    if not lines:
        return
    # A kill or a full disk may have left an incomplete line. A newline separates it from the new ones.
    is_incomplete = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * bool(is_incomplete) + "".join(lines))
        file.flush()
        os.fsync(file.fileno())


def comparable_groups(entries: Sequence[Entry], current: Collection[str] = ()) -> list[list[Entry]]:
    """Group the entries by comparability. Groups of current runs come first, then the newest.

    The entries of a group start with the oldest.
    """
    # The content of the data is unknown without digests.
    entries_with_data = [entry for entry in entries if entry.content_digests is not None]
    fields = [*record.names(compared=True), *record.names("hardware")]
    groups = grouped(sorted(entries_with_data, key=age_order), fields)
    groups.sort(key=lambda group: age_order(group[-1]), reverse=True)
    return sorted(groups, key=lambda group: all(entry.fingerprint not in current for entry in group))


def age_order(entry: Entry) -> tuple[datetime, str, str]:
    """Return the identity of a run, which orders entries by the end of the run."""
    return datetime.fromisoformat(entry.finished_at), entry.fingerprint, entry.hostname or ""


def _line(entry: Entry) -> str:
    fields = {*reading.Entry.model_fields} - {"status", "time_breakdown", *record.names("evidence", repeated=True)}
    return json.dumps(facts(entry, [name for name in reading.Entry.model_fields if name in fields])) + "\n"


@dataclass(frozen=True)
class MetricChange:
    """Means of a metric for the current and the previous runs, and the difference between them.

    ``deviation`` is the standard deviation that noise alone would give to ``change``, None with too few runs.
    ``sigmas`` is the change in standard deviations, None also if the deviation is 0. ``obstacle`` is "no reference" or
    "other speed" if the change cannot be judged.
    """

    value: float | None
    baseline: float | None
    change: float | None
    deviation: float | None
    sigmas: float | None
    obstacle: str | None = None


@dataclass(frozen=True)
class Change:
    """Comparable current runs, the number of ``earlier`` ones of other code, and the end of the last of these.

    Without an accuracy, ``test_accuracy`` is that of the negative loss, which is also greater for a better run.
    """

    runs: list[Entry]
    earlier: int
    since: str | None
    test_accuracy: MetricChange
    examples_per_second: MetricChange

    @property
    def has_accuracy(self) -> bool:
        """Whether the problem of the runs has an accuracy."""
        return results_of(self.runs[0].problem).has_accuracy

    @property
    def metric(self) -> str:
        """Name of the metric that is compared."""
        return "test accuracy" if self.has_accuracy else "test loss"


def changes(groups: Iterable[Sequence[Entry]], current: Collection[tuple[str, str]]) -> list[Change]:
    """Return the changes of the ``current`` runs, by fingerprint and ``finished_at``, per group of comparable runs.

    The runs that differ from a current run only in their seed count as current. They differ by noise alone.
    """
    changes_by_group = []
    for group in groups:
        if origins := {_origin(entry) for entry in group if (entry.fingerprint, entry.finished_at) in current}:
            runs = [entry for entry in group if _origin(entry) in origins]
            changes_by_group.append(_change(runs, [entry for entry in group if _origin(entry) not in origins]))
    return changes_by_group


def _origin(entry: Entry) -> str:
    """Return the code, the settings and the data of a run without its seed. Earlier records have only a fingerprint."""
    return entry.made_from or entry.fingerprint


def compare_metrics(
    current: _Values, previous: _Values, replicates: Sequence[Sequence[float]], *, min_noise: float = 0.0
) -> MetricChange:
    """Compare the mean of a metric over the current runs with its mean over the previous runs.

    ``replicates`` are sets of values that differ by noise alone. ``min_noise`` is the least deviation of a run.
    """
    value, baseline = Spread.of(current).mean, Spread.of(previous).mean
    change = value - baseline if value is not None and baseline is not None else None
    noise, degrees = _pooled(replicates)
    deviation = sigmas = None
    if noise is not None and previous:
        deviation = max(noise, min_noise) * math.sqrt(1 / len(current) + 1 / len(previous))
    if change is not None and deviation:
        # Convert the tail probability of Student's t to standard deviations of a normal distribution.
        probability = max(float(stdtr(degrees, -abs(change / deviation))), _MIN_PROBABILITY)
        sigmas = math.copysign(-float(ndtri(probability)), change)
    return MetricChange(value, baseline, change, deviation, sigmas)


def sampling_error(problem: str, accuracy: float | None, examples: int | None) -> float:
    """Return the standard error of an accuracy on so many test examples, 0 if it is unknown, as that of a loss."""
    if not results_of(problem).has_accuracy or accuracy is None or not examples:
        return 0.0
    draws = examples / results_of(problem).ranking.predictions_per_draw
    # Laplace's rule of succession keeps the error above 0 if every prediction was correct.
    rate = (accuracy * draws + 1) / (draws + 2)
    return math.sqrt(max(0.0, rate * (1 - rate)) / draws)


def judge_change(change: MetricChange) -> str:
    """Return "better", "worse", "noise", "new" (no baseline), "unknown" (too few runs), or the obstacle."""
    if change.change is None:
        return "new"
    if change.obstacle:
        return change.obstacle
    if change.deviation is None and change.change:
        return "unknown"
    if not is_beyond(change, NOISE_SIGMA):
        return "noise"
    return "better" if change.change > 0 else "worse"


def is_beyond(change: MetricChange, sigmas: float) -> bool:
    """Return whether a change exceeds so many standard deviations. Any change does if the earlier runs agree."""
    return bool(change.change) and (change.sigmas is None or abs(change.sigmas) > sigmas)


def describe_change(change: MetricChange) -> str:
    """Describe the result of `judge_change`, with the change in standard deviations."""
    verdict, sigmas = judge_change(change), change.sigmas
    text = _VERDICT_TEXTS.get(verdict, verdict)
    return text if sigmas is None else f"{text} ({number(abs(sigmas), 1)} σ)"


def _change(current: list[Entry], rest: Sequence[Entry]) -> Change:
    last_end = max(map(age_order, current))
    earlier = [entry for entry in rest if age_order(entry) < last_end]
    previous = [entry for entry in earlier if _origin(entry) == _origin(earlier[-1])]
    recent = earlier[-_MAX_EARLIER_RUNS:]
    # A repeated run is no second draw of its accuracy.
    distinct = [[*{entry.fingerprint: entry for entry in entries}.values()] for entries in (current, previous, recent)]
    return Change(
        runs=distinct[0],
        earlier=len(earlier),
        since=previous[-1].finished_at if previous else None,
        test_accuracy=_accuracy(*distinct),
        examples_per_second=_throughput(current, previous, recent),
    )


def _accuracy(current: Sequence[Entry], previous: Sequence[Entry], recent: Sequence[Entry]) -> MetricChange:
    replicates = _replicates(_ACCURACY, current, recent)
    if _pooled(replicates)[0] is None:
        replicates = [_column(_ACCURACY, recent, skip_none=True)]
    # Comparable runs share a test split. Earlier records lack its size.
    examples = max(_column("test_examples", [*current, *previous], skip_none=True), default=None)
    accuracy = Spread.of(_column(_ACCURACY, previous, skip_none=True)).mean
    min_noise = sampling_error(current[0].problem, accuracy, examples)
    return compare_metrics(_column(_ACCURACY, current), _column(_ACCURACY, previous), replicates, min_noise=min_noise)


def _throughput(current: Sequence[Entry], previous: Sequence[Entry], recent: Sequence[Entry]) -> MetricChange:
    replicates = _replicates(_THROUGHPUT, current, recent)
    change = compare_metrics(_column(_THROUGHPUT, current), _column(_THROUGHPUT, previous), replicates)
    current_speed, baseline_speed = (Spread.of(_column(_REFERENCE, runs)).mean for runs in (current, previous))
    obstacle = None
    if not current_speed or not baseline_speed:
        obstacle = "no reference"
    elif change.deviation and change.baseline:
        relative = change.deviation / change.baseline
        obstacle = "other speed" if abs(current_speed / baseline_speed - 1) > relative else None
    return replace(change, obstacle=obstacle, sigmas=None if obstacle else change.sigmas)


def _replicates(name: str, current: Sequence[Entry], recent: Sequence[Entry]) -> list[list[float]]:
    """Return values of runs of the same code. Student's t requires that current and earlier runs form separate sets."""
    sets = [group for runs in (current, recent) for group in grouped(runs, ["made_from"])]
    return [_column(name, group, skip_none=True) for group in sets if group[0].made_from is not None]


def _pooled(sets: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """Return the standard deviation of a single run, None with too few degrees of freedom, and these degrees."""
    degrees = sum(len(values) - 1 for values in sets if values)
    if degrees < MIN_DEGREES_OF_FREEDOM:
        return None, degrees
    draws = [frozenset(values) for values in sets if values]
    try:
        means = [(values, statistics.fmean(values)) for values in draws]
        squares = math.fsum((value - mean) ** 2 for values, mean in means for value in values)
    except OverflowError:
        return None, degrees
    return math.sqrt(squares / max(1, sum(len(values) - 1 for values in draws))), degrees


def _column(name: str, entries: Iterable[Entry], *, skip_none: bool = False) -> list[Any]:
    values = [_value(entry, name) for entry in entries]
    return [value for value in values if value is not None] if skip_none else values


def _value(entry: Entry, name: str) -> Any:
    if name == _ACCURACY and not results_of(entry.problem).has_accuracy:
        return None if entry.test_loss is None else -entry.test_loss
    return getattr(entry, name)
