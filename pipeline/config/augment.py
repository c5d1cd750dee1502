"""Parses [Train] augment: a list of named operations, each with at most one number, as in "flip, crop:4"."""

import re

from pipeline.config.refusal import closest, refuse
from pipeline.config.schema import Rule, integer, number, number_or_text

# Operation → its default number and the valid ones. None if it takes no number.
OPERATIONS: dict[str, tuple[float, Rule] | None] = {
    "flip": None,
    "alternating_flip": None,
    "crop": (4, integer(1, 512)),
    "translate": (0.1, number(0.01, 0.9)),
    "random_resized_crop": (0.35, number(0.05, 1.0)),
    "color": (0.2, number(0.01, 0.9)),
    "cutout": (8, integer(1, 512)),
    "mixup": (0.2, number(0.01, 10.0)),
}


def parse_augment(text: str) -> tuple[tuple[str, float | None], ...]:
    """The operations of the setting and their numbers, in the order given.

    Raises:
        SettingsError: an operation is unknown or occurs twice, or its number is invalid.
    """
    found: dict[str, float | None] = {}
    for item in filter(None, re.split(r"[,\s]+", text)):
        name, colon, written = item.partition(":")
        if name not in OPERATIONS:
            meant = item.replace("=", ":")
            hint = f" Did you mean {meant!r}?" if meant != item else closest(name, [*OPERATIONS])
            refuse("Train", "augment", f"operations among {', '.join(OPERATIONS)}", text, hint)
        if name in found:
            refuse("Train", "augment", f"each operation once, not {name} again", text)
        if (takes := OPERATIONS[name]) is None and colon:
            refuse("Train", "augment", f"{name} without a number", text)
        found[name] = _number(name, written, takes[1], text) if colon else takes and takes[0]
    return tuple(found.items())


def spelled(text: str) -> str:
    """The setting in the one form of all texts with the same operations."""
    items = parse_augment(text)
    return ", ".join(name if number is None else f"{name}:{number:g}" for name, number in items)


def _number(name: str, written: str, rule: Rule, text: str) -> float:
    value = number_or_text(written)
    if rule.problem(value) is not None:
        refuse("Train", "augment", f"{rule.expected} after {name}:", text)
    return value
