"""Refusal: how every setting that cannot be is reported, and the checks that most of them need."""

import difflib
from collections.abc import Sequence

from pipeline.errors import SettingsError


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise the SettingsError every refused setting is reported with.

    Raises:
        SettingsError: always; it names the setting, what was expected, what came and where to change it.
    """
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint} "
        f"Change it in config.ini or pass --{section}-{name.replace('_', '-')}."
    )


# What people call it elsewhere.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}


def closest(name: str, known: Sequence[str]) -> str:
    """' Did you mean …?' for the known name nearest to ``name``, or an empty string."""
    name = _SYNONYMS.get(name, name)
    matches = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def one_of(section: str, name: str, choices: Sequence[str], got: str) -> None:
    """Refuse what is none of the choices, naming the nearest."""
    if got not in choices:
        refuse(
            section,
            name,
            f"one of {', '.join(choice or 'nothing' for choice in choices)}",
            got,
            closest(str(got), choices),
        )


def in_range(section: str, name: str, got: int, low: int, high: int) -> None:
    """Refuse what is no integer from ``low`` to ``high``."""
    # A JSON list may hold true, which is an int to isinstance.
    if type(got) is not int or not low <= got <= high:
        refuse(section, name, f"an integer from {low} to {high}", got)
