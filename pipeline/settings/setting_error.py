"""Errors for invalid settings, and the hints in their messages."""

import difflib
import json
import os
from collections.abc import Callable, Sequence

from pipeline.errors import SettingsError, message

#: Variable with the flags of this command, and with the file of each setting, as JSON. Processes of stages inherit it.
PLACES = "TENSORCRAFT_SETTING_PLACES"
# Terms of other programs and of version 0.1 → names and values of settings.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}
_SYNONYMS |= {"recipe": "training_recipe", "recipes": "training_recipes"}


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise a SettingsError with the setting, the expected values, the value received and the remedy."""
    places = json.loads(os.environ.get(PLACES, "{}"))
    # The flags of the requested task may omit the section.
    flags = [f"--{words}".replace("_", "-") for words in (f"{section}-{name}", name)]
    passed, file = [flag for flag in flags if flag in places], places.get(f"{section}.{name}", "config.ini")
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint}",
        f"Change {passed[0]}." if passed else f"Change it in {file} or pass {flags[0]}.",
    )


@message
def closest(name: str, known: Sequence[str], key: Callable[[str], str] = str) -> str:
    """Suggest the known name whose ``key`` is closest to that of ``name``. Return an empty string if none is close."""
    names = {key(each): each for each in known}
    matches = difflib.get_close_matches(_SYNONYMS.get(key(name), key(name)), names, n=1)
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""
