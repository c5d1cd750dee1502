"""Comparison of the newest requested run with the run in use, on the same test examples.

Tests are one-sided. Right and wrong answers have McNemar's exact test (McNemar 1947). Losses have a test that flips the
signs of the differences at random (Fisher 1935). Labels have Holm's correction (Holm 1979). A run whose loss is not
finite is worse than one whose loss is, without a test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy
from scipy.special import bdtr, ndtri

from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.data.history import age_order
from pipeline.report.data.reading import Run, call_hook, read_or_none
from pipeline.report.data.scoreboard import has_other_data, loss_units
from pipeline.runs.record import FINISHED
from pipeline.settings.report import LAST

#: Largest probability of calling a run worse that is equal to the run in use.
MAX_FALSE_ALARMS = 0.05
_MAX_NAMED = 10
_RESAMPLING = {"n_resamples": 1_999, "batch": 50, "rng": 0}


@dataclass(frozen=True)
class Answers:
    """Results of a run per test example. ``examples`` are equal for the same test examples.

    ``values`` are the metric that ranks runs, float (examples,). ``labels`` has the right answers of each label, bool
    (examples of the label,).
    """

    examples: Any
    values: np.ndarray
    labels: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """Mean results of the run in use and of the newest one, and the probability of so low a result by chance."""

    name: str
    examples: int
    before: float
    after: float
    p_value: float

    @property
    def is_worse(self) -> bool:
        """Whether chance hardly explains the result."""
        return self.p_value < MAX_FALSE_ALARMS


@dataclass(frozen=True)
class Comparison:
    """The newest run and the run in use. Without a ``total``, ``obstacle`` is the reason, which ``is_expected`` or not.

    ``interval`` bounds the total difference with a confidence of 90%. ``labels`` begins with the least p value. Both
    are empty if the difference is not finite.
    """

    newest: Run
    champion: Run | None
    obstacle: str = ""
    is_expected: bool = False
    total: Difference | None = None
    interval: Sequence[float] = ()
    labels: Sequence[Difference] = ()

    def __str__(self) -> str:
        if not (total := self.total):
            return f"The newest run was not compared with the run in use, because {self.obstacle}."
        metric, names = self.newest.ranking.metric, [fmt.plain(one.name, 24) for one in self.labels if one.is_worse]
        is_share = metric == "test_accuracy"
        value = partial(fmt.percent if is_share else fmt.number, decimals=2 if is_share else 4)
        bounds = [*map(fmt.points if is_share else partial(fmt.signed, decimals=4), self.interval)]
        spread = "The 90% interval of the difference is {} to {}." if bounds else "One of them is not finite."
        name = f"{fmt.model_and_recipe(self.champion)} ({fmt.plain(self.champion.fingerprint)[:8]})"
        verdict = "The newest run is worse" if total.is_worse else "There is no evidence that the newest run is worse"
        groups = " The examples of a group depend on each other, so p is too small." * fmt.has_groups(self.newest)
        return (
            f"On the same {fmt.number(total.examples)} {self.newest.units.examples}, the {metric.replace('_', ' ')} of "
            f"the run in use, {name}, is {value(total.before)}. That of the newest run is {value(total.after)}. "
            f"{spread.format(*bounds)} {verdict} (p = {total.p_value:.2g}).{groups}"
        ) + (f" Worse labels: {', '.join(names[:_MAX_NAMED])}." if names else "")


def compare_with(champion: str, runs: Sequence[Run], current: Sequence[str]) -> Comparison | None:
    """Compare the newest of the ``current`` runs with the run in use. Return None if no current run has finished.

    ``champion`` is the name of a folder, LAST, or empty if there is no run in use yet. ``runs`` begin with the newest.
    """
    finished = [run for run in runs if run.status == FINISHED]
    newest = next((run for run in finished if run.fingerprint in current), None)
    if newest is None:
        return None
    others = [run for run in finished if run.path.name == champion]
    if champion == LAST:
        older = [run for run in finished if age_order(run) < age_order(newest) and run.fingerprint not in current]
        others = [run for run in older if run.experiment == newest.experiment and _is_alike(run, newest)]
    if not others:
        is_expected = champion in ("", LAST)
        reason = "there is no such run yet" if is_expected else "no undamaged run has its name"
        return Comparison(newest, None, reason, is_expected)
    in_use = others[0]
    if in_use is newest:
        return Comparison(newest, newest, "it is the run in use", is_expected=True)
    answers = [
        read_or_none(call_hook, one.problem, "answers", one.path, _in_units_of(newest, one)) for one in (in_use, newest)
    ]
    if None in answers:
        return Comparison(newest, in_use, "there are no results per test example")
    if not _is_alike(in_use, newest) or answers[0].examples != answers[1].examples:
        return Comparison(newest, in_use, "they have other test examples")
    return _compare(in_use, newest, *answers)


def _in_units_of(newest: Run, run: Run) -> Any:
    """Return the evaluation of a run. Numbers have the deviations of the newest run, so that losses have one unit."""
    if len(loss_units(run)) != len(loss_units(newest)) or loss_units(run) == loss_units(newest):
        return run.evaluation
    return run.evaluation.model_copy(update={"values": newest.evaluation.values})


def _is_alike(run: Run, other: Run) -> bool:
    is_same = (run.problem, run.is_placeholder) == (other.problem, other.is_placeholder)
    return is_same and not has_other_data(run, other)


def _compare(champion: Run, newest: Run, before: Answers, after: Answers) -> Comparison:
    sign = 1 if results_of(newest.problem).ranking.metric == "test_accuracy" else -1
    # The predictions of a diverged model are replaced in its files.
    before, after = (
        replace(one, values=one.values + np.nan) if run.test_loss is None else one
        for run, one in ((champion, before), (newest, after))
    )
    if not any(np.isfinite(one.values).all() for one in (before, after)):
        return Comparison(newest, champion, "neither has a finite loss")
    gains = after.values.astype(float) - before.values
    total, interval, labels = _difference("", before.values, after.values, sign), (), []
    if np.isfinite(gains).all():
        interval = interval_of(gains, is_share=sign == 1)
        labels = [_difference(name, before.labels[name], right) for name, right in after.labels.items() if len(right)]
    labels.sort(key=lambda one: one.p_value)
    # Holm's correction.
    p_values = np.maximum.accumulate([one.p_value * (len(labels) - rank) for rank, one in enumerate(labels)]).clip(0, 1)
    corrected = [replace(one, p_value=float(p_value)) for one, p_value in zip(labels, p_values, strict=True)]
    return Comparison(newest, champion, total=total, interval=interval, labels=corrected)


def _difference(name: str, before: np.ndarray, after: np.ndarray, sign: int = 1) -> Difference:
    gains = sign * (after.astype(float) - before)
    p_value = worse_probability(gains) if np.isfinite(gains).all() else float(np.isfinite(after).all())
    return Difference(name, len(gains), float(before.mean()), float(after.mean()), p_value)


def interval_of(gains: np.ndarray, *, is_share: bool) -> list[float]:
    """Return the bounds of the mean gain, float (examples,), or of a share of answers, with a confidence of 90%."""
    if is_share:
        # The adjustment of Agresti and Min 2005. A bootstrap of equal answers would have no width.
        better, worse, count = (gains > 0).sum() + 0.5, (gains < 0).sum() + 0.5, len(gains) + 2
        half = ndtri(0.95) * np.sqrt(better + worse - (better - worse) ** 2 / count) / count
        return [float((better - worse) / count + side * half) for side in (-1, 1)]
    # It requires two examples.
    draws, options = np.resize(gains, max(2, len(gains))), {"confidence_level": 0.9, "method": "percentile"}
    return [*map(float, scipy.stats.bootstrap((draws,), np.mean, **options, **_RESAMPLING).confidence_interval)]


def worse_probability(gains: np.ndarray) -> float:
    """Return the probability of so low a sum of gains, float (examples,), between equal models."""
    if np.isin(gains, (-1, 0, 1)).all():
        return float(bdtr(int((gains > 0).sum()), int((gains != 0).sum()), 0.5))
    options = {"permutation_type": "samples", "alternative": "less", **_RESAMPLING}
    # It requires two examples. A zero changes no sum.
    draws = gains if len(gains) > 1 else np.append(gains, 0)
    return float(scipy.stats.permutation_test((draws,), np.mean, **options).pvalue)


def paired_probability(only_first: int, only_second: int) -> float:
    """Return the two-sided probability of so uneven a split between equal models (McNemar's exact test)."""
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), only_first + only_second, 0.5)))
