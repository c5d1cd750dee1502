"""Comparisons of measured values with goals, rounds that alternate between actions, and ratios."""

import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A row of the results.

    ``ours`` and ``theirs`` have a value per round, in ``unit``. ``theirs`` is empty if the goal is a plain number.
    ``figures`` have a value per round too, and ``figure`` is their unit. Their median is compared with the goal.
    ``limit`` describes the limit of the machine, measured in the same run.
    """

    number: str
    what: str
    against: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    figure: str
    figures: Sequence[float]
    goal: float
    at_least: bool
    limit: str
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether the median of the figures meets the goal."""
        return (operator.ge if self.at_least else operator.le)(statistics.median(self.figures), self.goal)

    def to_json(self) -> dict:
        """Plain data, with median and verdict."""
        return {**asdict(self), "median": statistics.median(self.figures), "reached": self.reached}


def speedup(number: str, against: str, theirs: Sequence[float], goal: float, **row: Any) -> Comparison:
    """Compare speeds round by round. ``row`` has the other fields, and its unit is "s" or a rate such as "images/s"."""
    is_rate = row["unit"] != "s"
    return Comparison(
        number=number,
        against=against,
        theirs=theirs,
        figure=f"times the {row['unit']}" if is_rate else "times as fast",
        figures=ratios(row["ours"], theirs) if is_rate else ratios(theirs, row["ours"]),
        goal=goal,
        at_least=True,
        **row,
    )


def interleaved(
    actions: Mapping[str, Callable[[], float]], rounds: int, *, warm_up: bool = False
) -> dict[str, list[float]]:
    """Call each action once a round, one after the other; their values by name.

    ``warm_up``: a first round does not count, for what compiles or is read from disk for the first time.
    """
    values: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + warm_up):
        for name, action in actions.items():
            value = action()
            if number >= warm_up:
                values[name].append(value)
    return values


def seconds_of(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round, so that a drift of the machine cancels out."""
    return [left / right for left, right in zip(over, under, strict=True)]
