"""Names of the things that a problem counts, for reports and logs. Depends on the standard library alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

IMAGE_CLASSIFICATION, NEXT_TOKEN = "image_classification", "next_token"
#: The tokens of a text that has more characters than fit.
BYTES = "bytes"


@dataclass(frozen=True)
class Units:
    """``one`` and ``many`` predictions; their ``rate``; ``examples`` of a batch; ``files`` for predictions."""

    one: str
    many: str
    rate: str
    examples: str
    files: str


_UNITS = {
    (IMAGE_CLASSIFICATION, ""): Units("image", "images", "images/s", "images", "images"),
    (NEXT_TOKEN, ""): Units("character", "characters", "characters/s", "sequences", "texts"),
    (NEXT_TOKEN, BYTES): Units("byte", "bytes", "bytes/s", "sequences", "texts"),
}
_NEUTRAL = Units("example", "examples", "examples/s", "examples", "files")


def units_of(problem: str, tokens: str = "") -> Units:
    """The units of a problem by its name, neutral ones for an unknown name.

    ``tokens``: BYTES for a text that is predicted byte by byte.
    """
    return _UNITS.get((problem, tokens if tokens == BYTES else ""), _NEUTRAL)


def units_of_run(run: Mapping[str, Any]) -> Units:
    """The units of a run, or of a group of runs, by ``problem`` and ``tokens``."""
    return units_of(run["problem"], run["tokens"])


def units_of_all(runs: Iterable[Mapping[str, Any]]) -> Units:
    """The units of all runs if they are the same, else neutral ones."""
    different = {units_of_run(run) for run in runs}
    return different.pop() if len(different) == 1 else _NEUTRAL
