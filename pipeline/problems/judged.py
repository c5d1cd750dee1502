"""Judged: by which of their figures runs of a problem are better or worse, and how much their predictions say.

The problems' aid; the standard library alone. Whoever chooses the best of several runs asks here. It is apart from
units.py, which training reaches: another way to judge runs trains none of them again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN


@dataclass(frozen=True)
class Judged:
    """``figure``: its name in a run's record. ``predictions_per_draw``: of which one alone is independent.

    The characters of a text hang together: who mistakes the first of a word mistakes the next as well. On Tiny
    Shakespeare's test split the sampling error of a network's accuracy, by blocks of 500 to 5,000 characters, is 1.3 to
    1.6 times that of as many independent ones; of the commonest character after each four, 2.1 times by blocks of 500,
    and ever more by longer ones, for whole plays differ. There is no one number, so no standard error is printed of a
    text. Where one must be assumed, a word of five characters counts as one: 2.2 times. Assuming too much calls a small
    change noise, assuming too little calls noise a change; a collapse is seen either way.
    """

    figure: str
    greater_is_better: bool
    predictions_per_draw: int


_JUDGED = {
    IMAGE_CLASSIFICATION: Judged("val_accuracy", True, 1),
    NEXT_TOKEN: Judged("val_loss", False, 5),
}
# Of a record of another version nothing is known: as cautious as of a text.
_UNKNOWN = Judged("val_accuracy", True, 5)


def judged(problem: str) -> Judged:
    """How runs of a problem, by its name, are judged."""
    return _JUDGED.get(problem, _UNKNOWN)


def merit(problem: str, figures: Mapping[str, float | None]) -> float:
    """A number that is greater the better a run is; −∞ where its figure is not known.

    Args:
        problem: its name; only runs of one problem are to be compared.
        figures: of the test split, by their names in a record.
    """
    by = judged(problem)
    figure = figures[by.figure]
    if figure is None or math.isnan(figure):
        return -math.inf
    return figure if by.greater_is_better else -figure
