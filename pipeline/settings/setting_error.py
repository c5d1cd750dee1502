"""Errors for invalid settings, and the hints in their messages."""

import difflib
from collections.abc import Callable, Sequence

from pipeline.errors import SettingsError, message

# Terms of other programs and of version 0.1 → names and values of settings.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}
_SYNONYMS |= {"recipe": "training_recipe", "recipes": "training_recipes"}


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise a SettingsError with the setting, the expected values, the value received and the remedy."""
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint}",
        f"Change it or pass --{section}-{name.replace('_', '-')}.",
    )


@message
def closest(name: str, known: Sequence[str], key: Callable[[str], str] = str) -> str:
    """Suggest the known name whose ``key`` is closest to that of ``name``. Return an empty string if none is close."""
    names = {key(each): each for each in known}
    matches = difflib.get_close_matches(_SYNONYMS.get(key(name), key(name)), names, n=1)
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""
