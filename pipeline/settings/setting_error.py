"""Errors for invalid settings, and the hints in their messages."""

import configparser
import contextlib
import difflib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline.errors import SettingsError, message

# The settings files and flags of this process, as JSON. Processes of the stages inherit it.
_SOURCES = "TENSORCRAFT_SETTING_SOURCES"


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise a SettingsError with the setting, the expected values, the value received and the remedy."""
    change = _change_of_source(section, name)
    raise SettingsError(f"[{section}] {name}: expected {expected}, got {got!r}.{hint}", change)


def record_sources(files: Sequence[Path], argv: Sequence[str]) -> None:
    """Record the sources of all settings for error messages, also of child processes. Later files override earlier."""
    flags = [word.partition("=")[0] for word in argv if word.startswith("--")]
    os.environ[_SOURCES] = json.dumps({"files": [str(path.resolve()) for path in files], "flags": flags})


def _sources() -> dict[str, list[str]]:
    return json.loads(os.environ.get(_SOURCES, '{"files": [], "flags": []}'))


def settings_file(section: str, name: str = "") -> str:
    """Return the path of the file that sets a setting, or contains a section, relative to the working directory."""
    for file in reversed(_sources()["files"]):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(file, encoding="utf-8")
        if parser.has_option(section, name) if name else parser.has_section(section):
            path = Path(file)
            # The working directory may have been removed.
            with contextlib.suppress(FileNotFoundError, ValueError):
                path = path.relative_to(Path.cwd())
            return str(path)
    return "config.ini"


@message
def _change_of_source(section: str, name: str) -> str:
    """The remedy for an invalid value. It names the flag or settings file with the value."""
    # A list of [Report] that is not empty replaces the value of [Train].
    candidates = [("Report", f"{name}s")] * (section == "Train") + [(section, name)]
    for owner, setting in candidates:
        long, short = (f"--{words}".replace("_", "-") for words in (f"{owner}-{setting}", setting))
        # The flags of the requested task may omit the section.
        if passed := {long, short} & {*_sources()["flags"]}:
            return f"Change {passed.pop()}."
    return f"Change it in {settings_file(section, name)} or pass {long}."


# Terms of other programs and of version 0.1 → names and values of settings.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}
_SYNONYMS |= {"recipe": "training_recipe", "recipes": "training_recipes"}


@message
def closest(name: str, known: Sequence[str], key: Callable[[str], str] = str) -> str:
    """Suggest the known name whose ``key`` is closest to that of ``name``. Return an empty string if none is close."""
    names = {key(each): each for each in known}
    matches = difflib.get_close_matches(_SYNONYMS.get(key(name), key(name)), names, n=1)
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""
