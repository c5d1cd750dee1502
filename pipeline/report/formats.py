"""Formats: single figures and names as text, shared by HTML, Markdown and the terminal.

What comes out is plain text on one line, without control characters and of bounded length, not yet escaped:
escaping belongs to each rendering.
"""

import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import Any

NO_FIGURE = "–"

_LONGEST = 80
_DATASET_NAMES = {"cifar10": "CIFAR-10"}


def number(value: float | None, decimals: int = 0) -> str:
    """A figure with its thousands separated; a dash where there is none or it is not finite."""
    if value is None or not math.isfinite(value):
        return NO_FIGURE
    # A diverged loss of 1e38 would be wider than the page.
    return f"{value:,.{decimals}f}" if abs(value) < 1e12 else f"{value:.3g}"


def percent(fraction: float | None, decimals: int = 1) -> str:
    """A fraction from 0 to 1 in percent."""
    text = number(None if fraction is None else fraction * 100, decimals)
    return text if text == NO_FIGURE else f"{text} %"


def yes_no(flag: bool) -> str:
    """A flag as a word: colour alone would not reach everyone."""
    return "yes" if flag else "no"


def moment(iso_date: str) -> str:
    """An ISO 8601 date in UTC, to the minute."""
    return f"{datetime.fromisoformat(iso_date):%Y-%m-%d %H:%M} UTC"


def dataset_name(name: str) -> str:
    """A dataset's name as its authors write it, where it is known."""
    return _DATASET_NAMES.get(name, plain(name))


def plain(text: Any) -> str:
    """Text of unknown origin on one line of at most 80 letters, without control or direction marks."""
    letters = str(text)[: 4 * _LONGEST]
    # Categories C and Z: control, format, surrogate; separators.
    kept = "".join(" " if unicodedata.category(letter)[0] in "CZ" else letter for letter in letters)
    line = " ".join(kept.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def spread(rows: Sequence[Any], limit: int = 100) -> list[Any]:
    """At most `limit` of the rows, evenly spaced, the first and the last among them."""
    if len(rows) <= limit:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (limit - 1))] for place in range(limit)]
