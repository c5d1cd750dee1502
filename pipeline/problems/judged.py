"""The figure that ranks runs of a problem. Depends on the standard library alone.

Training does not import this module, so another ranking makes no run stale.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN


@dataclass(frozen=True)
class Judged:
    """``figure``: its name in a run's record. ``predictions_per_draw``: that count as one independent prediction.

    The characters of a text depend on each other. On Tiny Shakespeare, the sampling error of the accuracy is 1.3 to 2.1
    times that of independent characters. Where a standard error must be assumed, five characters count as one.
    """

    figure: str
    greater_is_better: bool
    predictions_per_draw: int


_JUDGED = {
    IMAGE_CLASSIFICATION: Judged("val_accuracy", True, 1),
    NEXT_TOKEN: Judged("val_loss", False, 5),
}
# Nothing is known about a record of another version, so it is as cautious as for a text.
_UNKNOWN = Judged("val_accuracy", True, 5)


def judged(problem: str) -> Judged:
    """How runs of a problem are ranked, by its name."""
    return _JUDGED.get(problem, _UNKNOWN)


def merit(problem: str, figures: Mapping[str, float | None]) -> float:
    """A number that is greater for a better run, −∞ if its figure is not known. Compare runs of one problem only.

    ``figures``: of the test split, by their names in a record.
    """
    by = judged(problem)
    figure = figures[by.figure]
    if figure is None or math.isnan(figure):
        return -math.inf
    return figure if by.greater_is_better else -figure
