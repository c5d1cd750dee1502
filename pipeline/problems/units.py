"""Names of the things that a problem counts, for reports and logs. Depends on the standard library alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.problems import PROBLEMS

#: The tokens of a text that has more characters than fit.
BYTES = "bytes"


@dataclass(frozen=True)
class Units:
    """``one`` and ``many`` predictions; their ``rate``; ``examples`` of a batch; ``files`` for predictions."""

    one: str
    examples: str
    files: str

    @property
    def many(self) -> str:
        """The plural."""
        return f"{self.one}s"

    @property
    def rate(self) -> str:
        """The unit of the throughput."""
        return f"{self.many}/s"


NEUTRAL = Units("example", "examples", "files")


def units_of(problem: str, tokens: str = "") -> Units:
    """The units of a problem by its name, neutral ones for an unknown name. ``tokens``: as in a run's record."""
    if problem not in PROBLEMS:
        return NEUTRAL
    return PROBLEMS.load(problem)(tokens).units


def common_units(units: Iterable[Units]) -> Units:
    """The units if they are all the same, else neutral ones."""
    different = set(units)
    return different.pop() if len(different) == 1 else NEUTRAL
