"""Replaced by results.py. It stays until the report has moved to ``results_of``."""

from typing import NamedTuple

from pipeline.problems.results import merit, results_of

__all__ = ["judged", "merit"]


class Judged(NamedTuple):
    """See ``results.Ranking``."""

    figure: str
    greater_is_better: bool
    predictions_per_draw: int


def judged(problem: str) -> Judged:
    """How runs of a problem are ranked, by its name."""
    ranking = results_of(problem).ranking
    return Judged(ranking.metric, ranking.greater_is_better, ranking.predictions_per_draw)
