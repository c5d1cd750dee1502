"""Changes: whether the newest runs differ from the comparable runs before them by more than noise.

Noise is the pooled standard deviation within sets of runs that differ in their seed alone, else the spread of the
earlier runs. It comes from few runs, so a change is judged by Student's t. Equal results of other code are no further
draws, but count in the degrees of freedom. The noise of accuracy is at least the sampling error of the test split. With
that, at most 1 in 20 of equal runs is called a change (simulated). Throughput is judged only if the machine was as
fast, by the receipt's probe, to within the noise.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from scipy.special import ndtri, stdtr

from pipeline.problems.results import results_of
from pipeline.report.data.history import age_order, shared_facts
from pipeline.report.data.reading import Entry
from pipeline.report.data.scenarios import grouped, mean_and_deviation
from pipeline.report.formats import number

#: Within so many standard deviations a change is taken for noise; 1 change in 20 between equal runs lies beyond.
NOISE_SIGMA = 1.96
#: With fewer degrees of freedom the noise counts as unknown: a change would have to be 13 times as large to be seen.
LEAST_FREEDOM = 2

_ACCURACY, _THROUGHPUT, _REFERENCE = "test_accuracy", "examples_per_second", "reference_flops_per_second"
_MOST_EARLIER = 20
# A smaller chance has no number of standard deviations.
_LEAST_CHANCE = 1e-300
_WORDS = {
    "new": "no earlier run to compare with",
    "unknown": "too few runs to estimate the noise",
    "noise": "within noise",
    "no reference": "not compared because the speed of the machine is unknown",
    "other speed": "not compared because the speed of the machine differs",
}


@dataclass(frozen=True)
class MetricChange:
    """The means of a metric now and before, their ``change``, its standard ``deviation`` by noise alone, and in sigmas.

    Unknown values are None: ``deviation`` with too few runs, ``sigmas`` also if the deviation is 0. ``obstacle``: to
    judging it, "no reference" or "other speed".
    """

    value: float | None
    baseline: float | None
    change: float | None
    deviation: float | None
    sigmas: float | None
    obstacle: str | None = None


@dataclass(frozen=True)
class Change:
    """Current runs that are comparable, the number of ``earlier`` ones, and when the last of those finished."""

    runs: list[Entry]
    earlier: int
    since: str | None
    test_accuracy: MetricChange
    examples_per_second: MetricChange

    @property
    def fingerprints(self) -> list[str]:
        """Of the current runs."""
        return [run.fingerprint for run in self.runs]

    def to_json(self) -> dict[str, Any]:
        """The shared fields and the changes."""
        own = {name: value for name, value in asdict(replace(self, runs=[])).items() if name != "runs"}
        return {**shared_facts(self.runs[0]), "fingerprints": self.fingerprints, **own}


def changes(groups: Iterable[Sequence[Entry]], current: Collection[tuple[str, str]]) -> list[Change]:
    """The changes of the current runs, by fingerprint and ``finished_at``, for each of the ``comparable_groups``."""
    found = []
    for group in groups:
        mine = _newest_of_each(one for one in group if (one.fingerprint, one.finished_at) in current)
        if mine:
            others = [entry for entry in group if not any(entry is one for one in mine)]
            found.append(_change(mine, others))
    return found


def compare_figures(
    mine: Sequence[float | None], last: Sequence[float | None], alike: Sequence[Sequence[float]], *, least: float = 0.0
) -> MetricChange:
    """Compare the mean of a metric of some runs, ``mine``, with that of the ``last`` ones.

    The noise of one run is the deviation within sets of values that should be ``alike``, and at ``least`` so much.
    """
    value, baseline = _mean(mine), _mean(last)
    change = value - baseline if value is not None and baseline is not None else None
    noise, freedom = _pooled(alike)
    deviation = max(noise, least) * math.sqrt(1 / len(mine) + 1 / len(last)) if noise is not None and last else None
    sigmas = None
    if change is not None and deviation:
        # As rare in a normal distribution as the change is in Student's t.
        chance = max(float(stdtr(freedom, -abs(change / deviation))), _LEAST_CHANCE)
        sigmas = math.copysign(-float(ndtri(chance)), change)
    return MetricChange(value, baseline, change, deviation, sigmas)


def judge_change(change: MetricChange) -> str:
    """better, worse, noise, new (nothing to compare with), unknown (too few runs), or the obstacle."""
    if change.change is None:
        return "new"
    if change.obstacle:
        return change.obstacle
    if change.deviation is None:
        return "noise" if change.change == 0 else "unknown"
    if not is_beyond(change, NOISE_SIGMA):
        return "noise"
    return "better" if change.change > 0 else "worse"


def is_beyond(change: MetricChange, sigmas: float) -> bool:
    """Whether a change is larger than so many standard deviations, as any is if the runs before did not differ."""
    return bool(change.change) and (change.sigmas is None or abs(change.sigmas) > sigmas)


def change_words(change: MetricChange) -> str:
    """The result of `judge_change` in words, with the change in standard deviations."""
    verdict, sigmas = judge_change(change), change.sigmas
    words = _WORDS.get(verdict, verdict)
    return words if sigmas is None else f"{words} ({number(abs(sigmas), 1)} σ)"


def _change(mine: list[Entry], others: Sequence[Entry]) -> Change:
    began = min(map(age_order, mine))
    earlier = [entry for entry in others if age_order(entry) < began]
    last = earlier[-1:]
    if last and last[0].made_from is not None:
        last = [entry for entry in earlier if entry.made_from == last[0].made_from]
    recent = earlier[-_MOST_EARLIER:]
    return Change(
        runs=mine,
        earlier=len(earlier),
        since=last[-1].finished_at if last else None,
        test_accuracy=_accuracy(mine, _newest_of_each(last), _newest_of_each(recent)),
        examples_per_second=_throughput(mine, last, recent),
    )


def _accuracy(mine: Sequence[Entry], last: Sequence[Entry], recent: Sequence[Entry]) -> MetricChange:
    alike = _alike(_ACCURACY, mine, recent)
    if _pooled(alike)[0] is None:
        alike = [_column(_ACCURACY, recent, known=True)]
    # Comparable runs have one test split, the size of which earlier records leave out.
    examples = max(_column("test_examples", [*mine, *last], known=True), default=0)
    examples /= results_of(mine[0].problem).ranking.predictions_per_draw
    least, before = 0.0, _mean(_column(_ACCURACY, last, known=True))
    if before is not None and examples:
        # By Laplace's rule: if every example was right, the next may still be wrong.
        rate = (before * examples + 1) / (examples + 2)
        least = math.sqrt(max(0.0, rate * (1 - rate)) / examples)
    return compare_figures(_column(_ACCURACY, mine), _column(_ACCURACY, last), alike, least=least)


def _throughput(mine: Sequence[Entry], last: Sequence[Entry], recent: Sequence[Entry]) -> MetricChange:
    alike = _alike(_THROUGHPUT, mine, recent)
    change = compare_figures(_column(_THROUGHPUT, mine), _column(_THROUGHPUT, last), alike)
    now, before = (_mean(_column(_REFERENCE, side)) for side in (mine, last))
    obstacle = None
    if not now or not before:
        obstacle = "no reference"
    elif change.deviation and change.baseline:
        relative = change.deviation / change.baseline
        obstacle = "other speed" if abs(now / before - 1) > relative else None
    return replace(change, obstacle=obstacle, sigmas=None if obstacle else change.sigmas)


def _alike(name: str, mine: Sequence[Entry], recent: Sequence[Entry]) -> list[list[float]]:
    """The metric in sets of runs of the same code. Those now are apart from those before: t needs independent sets."""
    sets = [group for side in (mine, recent) for group in grouped(side, ["made_from"])]
    return [_column(name, group, known=True) for group in sets if group[0].made_from is not None]


def _pooled(sets: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """Standard deviation of one run and its degrees of freedom. None if these are too few."""
    freedom = sum(len(values) - 1 for values in sets if values)
    if freedom < LEAST_FREEDOM:
        return None, freedom
    draws = [frozenset(values) for values in sets if values]
    try:
        squares = math.fsum(len(values) * statistics.pvariance(values) for values in draws)
    except OverflowError:
        return None, freedom
    return math.sqrt(squares / max(1, sum(len(values) - 1 for values in draws))), freedom


def _mean(values: Sequence[float | None]) -> float | None:
    return mean_and_deviation(values).mean


def _column(name: str, entries: Iterable[Entry], *, known: bool = False) -> list[Any]:
    values = [getattr(entry, name) for entry in entries]
    return [value for value in values if value is not None] if known else values


def _newest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each fingerprint: a run that was repeated is no second draw of its accuracy."""
    return sorted({entry.fingerprint: entry for entry in sorted(entries, key=age_order)}.values(), key=age_order)
