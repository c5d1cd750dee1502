"""Changes: the newest runs compared with those before them, and whether a change is more than noise.

Noise is the pooled sample standard deviation within sets of runs of the same code, data and settings, which differ in
their seed alone. Where there are no such sets, accuracy is compared with the spread of the earlier runs, whose changes
of code then count as noise. The deviation comes from few runs, so a change is judged by Student's t with their degrees
of freedom and given in the standard deviations (σ) that are as rare in a normal distribution.

Code that changes nothing in the computation repeats its result exactly. That is no further draw, and adds nothing to
the deviation; nor does it mean that there is no noise, so the noise of accuracy is at least the sampling error of the
test split, of as many independent predictions as it holds (problems/judged.py). It is evidence that the next result
will be the same as well, and counts in the degrees of freedom: of a series of equal runs, of which the code of some
changes the computation, at most 1 in 20 is called a change (simulated).

Throughput is a property of the machine and of what else runs on it: it is judged only where a reference measured with
each run (the receipt's probe) agrees to within the noise of throughput. Noise then cannot hide another speed of the
machine, which, if all of it came through, would be taken for a change.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from scipy.special import ndtri, stdtr

from pipeline.problems.judged import judged
from pipeline.report.data.history import Entry, age_order, comparable_groups, shared_facts
from pipeline.report.data.scenarios import grouped
from pipeline.report.formats import number

#: Within so many standard deviations a change is taken for noise; 1 change in 20 between equal runs lies beyond.
NOISE_SIGMA = 1.96
#: With fewer degrees of freedom the noise counts as unknown: a change would have to be 13 times as large to be seen.
LEAST_FREEDOM = 2

_ACCURACY, _THROUGHPUT, _REFERENCE = "val_accuracy", "examples_per_second", "reference_flops_per_second"
_MOST_EARLIER = 20
# Beyond it all is one: a chance of 1e-300.
_LEAST_CHANCE = 1e-300


def changes(entries: Sequence[Entry], current: Collection[tuple[str, str]]) -> list[dict[str, Any]]:
    """The current runs of each group of comparable runs against the last ones before them.

    Args:
        entries: of the history.
        current: fingerprint and ``finished_at`` of each current run; what has the fingerprint alone is another run.

    Returns:
        For each group what its runs share; `fingerprints` of its current runs; `earlier`, the number of runs before
        them; `since`, when the last of those finished, None where there is none; and by figure (`val_accuracy`,
        `examples_per_second`) what compare_figures returns, against the last runs that differ in their seed alone,
        and `obstacle`: why a change is not judged ("no reference", "other speed"; `sigmas` is then None), or None.
    """
    found = []
    for group in comparable_groups(entries):
        mine = _newest_of_each(one for one in group if (one["fingerprint"], one["finished_at"]) in current)
        if mine:
            found.append(_change(mine, [entry for entry in group if entry not in mine]))
    return found


def compare_figures(
    mine: Sequence[float | None], last: Sequence[float | None], alike: Sequence[Sequence[float]], *, least: float = 0.0
) -> dict[str, float | None]:
    """The mean of one figure of some runs compared with that of others.

    Args:
        mine: the figure of each run.
        last: that of each run compared with.
        alike: sets of the figure of runs that should come out alike; the noise is the deviation within them.
        least: the noise of one run, where the deviation is less.

    Returns:
        The means, `value` and `baseline`; the `change`; its standard `deviation` if nothing but noise made it; and the
        change in `sigmas`. What is not known is None: `deviation` with too few runs, `sigmas` where it is 0 as well.
    """
    value, baseline = _mean(mine), _mean(last)
    change = value - baseline if value is not None and baseline is not None else None
    noise, freedom = _pooled(alike)
    deviation = max(noise, least) * math.sqrt(1 / len(mine) + 1 / len(last)) if noise is not None and last else None
    sigmas = _as_rare(change / deviation, freedom) if change is not None and deviation else None
    return {"value": value, "baseline": baseline, "change": change, "deviation": deviation, "sigmas": sigmas}


def judge_change(change: Mapping[str, Any]) -> str:
    """One word on one figure's change.

    better, worse, noise, new (nothing to compare with), unknown (too few runs to know the noise), or the obstacle.
    """
    if change["change"] is None:
        return "new"
    if change["obstacle"]:
        return change["obstacle"]
    if change["deviation"] is None:
        return "noise" if change["change"] == 0 else "unknown"
    # Runs that came out exactly alike on an unknown number of examples leave no noise for any change to hide in.
    if change["change"] == 0 or (change["sigmas"] is not None and abs(change["sigmas"]) <= NOISE_SIGMA):
        return "noise"
    return "better" if change["change"] > 0 else "worse"


def change_words(change: Mapping[str, Any]) -> str:
    """The result of `judge_change` in words, with the change in standard deviations."""
    words = {
        "new": "no earlier run to compare with",
        "unknown": "too few runs to estimate the noise",
        "noise": "within noise",
        "better": "better",
        "worse": "worse",
        "no reference": "not judged: how fast the machine was is not known",
        "other speed": "not judged: the machine's speed differed",
    }[judge_change(change)]
    return words if change["sigmas"] is None else f"{words} ({number(abs(change['sigmas']), 1)} σ)"


def _change(mine: Sequence[Entry], others: Sequence[Entry]) -> dict[str, Any]:
    began = min(map(age_order, mine))
    earlier = [entry for entry in others if age_order(entry) < began]
    last = [entry for entry in earlier if entry["made_from"] == earlier[-1]["made_from"]] if earlier else []
    last = last if last and last[-1]["made_from"] is not None else earlier[-1:]
    recent = earlier[-_MOST_EARLIER:]
    return {
        **shared_facts(mine[0]),
        "fingerprints": [entry["fingerprint"] for entry in mine],
        "earlier": len(earlier),
        "since": last[-1]["finished_at"] if last else None,
        _ACCURACY: _accuracy(mine, _newest_of_each(last), _newest_of_each(recent)),
        _THROUGHPUT: _throughput(mine, last, recent),
    }


def _accuracy(mine: Sequence[Entry], last: Sequence[Entry], recent: Sequence[Entry]) -> dict[str, Any]:
    alike = _alike(_ACCURACY, mine, recent)
    if _pooled(alike)[0] is None:
        alike = [_known(_ACCURACY, recent)]
    # Comparable runs have one test split, the size of which earlier records leave out.
    examples = max(_known("test_examples", [*mine, *last]), default=0) / judged(mine[0]["problem"]).predictions_per_draw
    before, least = _column(_ACCURACY, last), _sampling_error(_mean(_known(_ACCURACY, last)), examples)
    return compare_figures(_column(_ACCURACY, mine), before, alike, least=least) | {"obstacle": None}


def _sampling_error(mean: float | None, examples: float) -> float:
    """Standard error of an accuracy for having so many independent examples and no more; 0 where they are unknown."""
    if mean is None or not examples:
        return 0.0
    # By Laplace's rule: where every example was right the next may still be wrong.
    accuracy = (mean * examples + 1) / (examples + 2)
    return math.sqrt(max(0.0, accuracy * (1 - accuracy)) / examples)


def _throughput(mine: Sequence[Entry], last: Sequence[Entry], recent: Sequence[Entry]) -> dict[str, Any]:
    figure = compare_figures(*(_column(_THROUGHPUT, side) for side in (mine, last)), _alike(_THROUGHPUT, mine, recent))
    obstacle = _obstacle(figure, *(_mean(_column(_REFERENCE, side)) for side in (mine, last)))
    return figure | ({"sigmas": None} if obstacle else {}) | {"obstacle": obstacle}


def _obstacle(figure: Mapping[str, float | None], now: float | None, before: float | None) -> str | None:
    if not now or not before:
        return "no reference"
    if not figure["deviation"] or not figure["baseline"]:
        return None
    return "other speed" if abs(now / before - 1) > figure["deviation"] / figure["baseline"] else None


def _alike(name: str, mine: Sequence[Entry], recent: Sequence[Entry]) -> list[list[float]]:
    """The figure in sets of runs of the same code; those now apart from those before, for t wants them independent."""
    sets = [group for side in (mine, recent) for group in grouped(side, ["made_from"])]
    return [_known(name, group) for group in sets if group[0]["made_from"] is not None]


def _pooled(sets: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """Standard deviation of one run and its degrees of freedom; None where these are too few."""
    freedom = sum(len(values) - 1 for values in sets if values)
    if freedom < LEAST_FREEDOM:
        return None, freedom
    draws = [frozenset(values) for values in sets if values]
    try:
        means = [statistics.fmean(values) for values in draws]
        squares = math.fsum((one - mean) ** 2 for values, mean in zip(draws, means, strict=True) for one in values)
    except OverflowError:
        return None, freedom
    return math.sqrt(squares / max(1, sum(len(values) - 1 for values in draws))), freedom


def _as_rare(statistic: float, freedom: int) -> float:
    """The standard deviations beyond which a normal distribution holds as much as Student's t beyond the statistic."""
    chance = max(float(stdtr(freedom, -abs(statistic))), _LEAST_CHANCE)
    return math.copysign(-float(ndtri(chance)), statistic)


def _mean(values: Sequence[float | None]) -> float | None:
    try:
        return statistics.fmean(values) if values and None not in values else None
    except OverflowError:
        return None


def _column(name: str, entries: Iterable[Entry]) -> list[float | None]:
    return [entry[name] for entry in entries]


def _known(name: str, entries: Iterable[Entry]) -> list[float]:
    return [value for value in _column(name, entries) if value is not None]


def _newest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each fingerprint: a run that was repeated is no second draw of its accuracy."""
    return sorted({entry["fingerprint"]: entry for entry in sorted(entries, key=age_order)}.values(), key=age_order)
