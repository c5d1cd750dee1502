"""Units: what a problem counts, in the words of a report or a log (the problems' aid; the standard library alone)."""

from collections.abc import Iterable
from dataclasses import dataclass

IMAGE_CLASSIFICATION, NEXT_TOKEN = "image_classification", "next_token"


@dataclass(frozen=True)
class Units:
    """``one`` and ``many`` of what is predicted; ``rate``, how many a second.

    ``examples``: what a batch is made of; ``files``: what holds them where anyone's are predicted.
    """

    one: str
    many: str
    rate: str
    examples: str
    files: str


_UNITS = {
    IMAGE_CLASSIFICATION: Units("image", "images", "images/s", "images", "images"),
    NEXT_TOKEN: Units("character", "characters", "characters/s", "sequences", "texts"),
}


_BYTES = Units("byte", "bytes", "bytes/s", "sequences", "texts")


def units_of(problem: str, tokens: str = "") -> Units:
    """The units of a problem by its name; of one that is not known, a record's of another version, neutral ones.

    ``tokens``: of a text "bytes", where that is known, for one of more characters than fit.
    """
    if (problem, tokens) == (NEXT_TOKEN, "bytes"):
        return _BYTES
    return _UNITS.get(problem, Units("example", "examples", "examples/s", "examples", "files"))


def units_of_all(problems: Iterable[str]) -> Units:
    """The units of all of them where they are of one problem, else neutral ones."""
    different = {*problems}
    return units_of(different.pop() if len(different) == 1 else "")
