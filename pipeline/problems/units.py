"""Units: what a problem counts, in the words of a report or a log (the problems' aid; the standard library alone)."""

from dataclasses import dataclass

IMAGE_CLASSIFICATION, NEXT_TOKEN = "image_classification", "next_token"


@dataclass(frozen=True)
class Units:
    """``one`` and ``many`` of what is predicted; ``rate``, how many a second; ``example``: what a batch is made of."""

    one: str
    many: str
    rate: str
    examples: str


_UNITS = {
    IMAGE_CLASSIFICATION: Units("image", "images", "images/s", "images"),
    NEXT_TOKEN: Units("character", "characters", "characters/s", "sequences"),
}


def units_of(problem: str) -> Units:
    """The units of a problem by its name; of one that is not known, a record's of another version, neutral ones."""
    return _UNITS.get(problem, Units("example", "examples", "examples/s", "examples"))
