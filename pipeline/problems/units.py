"""Names of the units that a problem counts, for reports and logs. The module needs only the standard library."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.problems import PROBLEMS

#: Tokens of a text with more characters than a vocabulary can contain.
BYTES = "bytes"


@dataclass(frozen=True)
class Units:
    """Names of a prediction (``singular``), of the ``examples`` of a batch, and of ``files`` for predictions."""

    singular: str
    examples: str
    files: str

    @property
    def plural(self) -> str:
        """Name of several predictions."""
        return f"{self.singular}s"

    @property
    def rate(self) -> str:
        """Unit of the throughput."""
        return f"{self.plural}/s"


NEUTRAL = Units("example", "examples", "files")


def units_of(problem: str, tokens: str = "") -> Units:
    """Return the units of a problem, neutral ones for an unknown name. ``tokens`` is the field of a run's record."""
    return PROBLEMS.load(problem)(tokens).units if problem in PROBLEMS else NEUTRAL


def common_units(units: Iterable[Units]) -> Units:
    """Return the units if they are all the same, or else neutral ones."""
    distinct = set(units)
    return distinct.pop() if len(distinct) == 1 else NEUTRAL
