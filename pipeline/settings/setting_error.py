"""Errors for invalid settings, and the hints in their messages."""

import difflib
from collections.abc import Sequence

from pipeline.errors import SettingsError, message


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise the error for an invalid setting.

    Raises:
        SettingsError: always. It contains the setting, the expected values, the value received and the remedy.
    """
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint} "
        f"Change it in config.ini or pass --{section}-{name.replace('_', '-')}."
    )


# Removed flag or section → remedy. Delete an entry after one release.
_REMOVED = {
    "--Storage-lease-seconds": "Leases were removed, so remove the setting.",
    "--Repetition-of": "Give the settings of the run to verify-determinism.",
    "[Repetition]": "It was removed, so remove the section.",
}
# Renamed flag → its new name. Delete an entry after one release.
_RENAMED = {
    "--Train-recipe": "--Train-training-recipe",
    "--Report-recipes": "--Report-training-recipes",
    "--Report-min-val-accuracy": "--Report-min-test-accuracy",
    "--Report-max-val-loss": "--Report-max-test-loss",
}
# Terms of other programs → values of settings.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}


@message
def closest(name: str, known: Sequence[str]) -> str:
    """Suggest the known name that is closest to ``name``. Return an empty string if none is close."""
    name = _SYNONYMS.get(name, name)
    matches = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


@message
def remedy(flag: str) -> str:
    """The hint for a removed or renamed setting, with a leading blank. Empty for any other flag."""
    if flag in _REMOVED:
        return f" {_REMOVED[flag]}"
    # The flags of the requested task may omit the section.
    new = _RENAMED.get(flag) or _RENAMED.get(f"--Report-{flag[2:]}")
    return f" The setting is now called {new}." if new else ""
