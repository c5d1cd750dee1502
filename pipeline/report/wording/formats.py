"""Formats: single figures and names as text, shared by HTML, Markdown and the terminal.

What comes out is plain text on one line, without control characters and of bounded length, not yet escaped:
escaping belongs to each rendering.
"""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

NO_FIGURE = "–"

_LONGEST = 80
_DATASET_NAMES = {"cifar10": "CIFAR-10", "tiny_shakespeare": "Tiny Shakespeare"}


def number(value: float | None, decimals: int = 0) -> str:
    """A figure with its thousands separated; a dash where there is none or it is not finite."""
    if value is None or not math.isfinite(value):
        return NO_FIGURE
    # A diverged loss of 1e38 would be wider than the page.
    return f"{value:,.{decimals}f}" if abs(value) < 1e12 else f"{value:.3g}"


def as_published(value: float | None) -> str:
    """A figure with the digits it has, those of a share in percent too: rounding is not ours to do."""
    # With more digits than anyone publishes the last would be those of the binary fraction.
    return number(value) if value is None or not math.isfinite(value) else f"{value:,.12g}"


def percent(fraction: float | None, decimals: int = 1) -> str:
    """A fraction from 0 to 1 in percent."""
    text = number(None if fraction is None else fraction * 100, decimals)
    return text if text == NO_FIGURE else f"{text} %"


def mean_number(figure: Mapping[str, float | None], decimals: int = 0) -> str:
    """A mean with its standard deviation where there is one, as `mean_and_deviation` gives them."""
    mean = number(figure["mean"], decimals)
    return mean if figure["deviation"] is None else f"{mean} ± {number(figure['deviation'], decimals)}"


def mean_percent(figure: Mapping[str, float | None], decimals: int = 1) -> str:
    """The same of fractions from 0 to 1, in percent."""
    text = mean_number({name: None if part is None else part * 100 for name, part in figure.items()}, decimals)
    return text if text == NO_FIGURE else f"{text} %"


def signed(value: float | None, decimals: int = 0) -> str:
    """A difference with its sign."""
    text = number(value, decimals)
    return f"+{text}" if value is not None and math.isfinite(value) and value > 0 else text.replace("-", "−")


def points(fraction: float | None) -> str:
    """A difference of two fractions from 0 to 1, in percentage points."""
    text = signed(None if fraction is None else 100 * fraction, 2)
    return text if text == NO_FIGURE else f"{text} points"


def megabytes(size: int | None) -> str:
    """A number of bytes in millions of them."""
    return NO_FIGURE if size is None else f"{number(size / 1e6)} MB"


def capitalised(text: str) -> str:
    """The text as a sentence begins."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 run", "3 runs"."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def yes_no(flag: bool) -> str:
    """A flag as a word: colour alone would not reach everyone."""
    return "yes" if flag else "no"


def moment(iso_date: str) -> str:
    """An ISO 8601 date in UTC, to the minute."""
    return f"{datetime.fromisoformat(iso_date):%Y-%m-%d %H:%M} UTC"


def dataset_name(name: str) -> str:
    """A dataset's name as its authors write it, where it is known."""
    return _DATASET_NAMES.get(name, plain(name))


def plain(text: Any, longest: int = _LONGEST) -> str:
    """Text of unknown origin on one line of at most 80 letters, or `longest`, without control or direction marks."""
    letters = str(text)[: 4 * longest]
    # Categories C and Z: control, format, surrogate; separators.
    kept = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in letters)
    line = " ".join(kept.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def hosts(hostnames: Sequence[str | None]) -> str:
    """The hosts of several runs as a label: each once, beyond three their number."""
    known = list(dict.fromkeys(plain(name) for name in hostnames if name))
    if len(known) > 3:
        return plural(len(known), "host")
    return ", ".join(known) or "an unknown host"


def sentence(text: str) -> str:
    """The text with a full stop, where it does not end as a sentence does."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
