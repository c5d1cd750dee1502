"""The setting [Train] augment: a list of named operations, each with at most one number, as in "flip, crop:4".

Read here, without TensorFlow, into pairs of name and number; ``pipeline.augmentation`` does what they say.
"""

import re
from dataclasses import dataclass

from pipeline.config.refusal import closest, refuse


@dataclass(frozen=True, kw_only=True)
class Argument:
    """The number an operation takes: from ``low`` to ``high``; ``default`` where it is left out."""

    default: float
    low: float
    high: float
    whole: bool = False

    def expected(self) -> str:
        """What may be given."""
        return f"{'an integer' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


# None: the operation takes no number.
OPERATIONS: dict[str, Argument | None] = {
    "flip": None,
    "alternating_flip": None,
    "crop": Argument(default=4, low=1, high=512, whole=True),
    "translate": Argument(default=0.1, low=0.01, high=0.9),
    "random_resized_crop": Argument(default=0.35, low=0.05, high=1.0),
    "color": Argument(default=0.2, low=0.01, high=0.9),
    "cutout": Argument(default=8, low=1, high=512, whole=True),
    "mixup": Argument(default=0.2, low=0.01, high=10.0),
}


def parse_augment(text: str) -> tuple[tuple[str, float | None], ...]:
    """The operations of the setting and their numbers, in the order given; () for an empty one.

    Raises:
        SettingsError: an operation is unknown or there twice, or its number is not one it takes.
    """
    found: dict[str, float | None] = {}
    for item in re.split(r"[,\s]+", text.strip(", \t\n")) if text.strip(", \t\n") else ():
        name, colon, written = item.partition(":")
        if name not in OPERATIONS:
            meant = item.replace("=", ":")
            hint = f" Did you mean {meant!r}?" if meant != item else closest(name, [*OPERATIONS])
            refuse("Train", "augment", f"operations among {', '.join(OPERATIONS)}", text, hint)
        if name in found:
            refuse("Train", "augment", f"each operation once, not {name} again", text)
        found[name] = _number(name, written, text) if colon else getattr(OPERATIONS[name], "default", None)
    return tuple(found.items())


def spelled(text: str) -> str:
    """The setting as every spelling of the same operations is written."""
    items = parse_augment(text)
    return ", ".join(name if number is None else f"{name}:{number:g}" for name, number in items)


def _number(name: str, written: str, text: str) -> float:
    argument = OPERATIONS[name]
    if argument is None:
        refuse("Train", "augment", f"{name} without a number", text)
    try:
        number = int(written) if argument.whole else float(written)
    except ValueError:
        number = float("nan")
    # Not a number compares false with everything.
    if not argument.low <= number <= argument.high:
        refuse("Train", "augment", f"{argument.expected()} after {name}:", text)
    return number
