"""Config files: what Luigi reads its settings from, each looked at before Luigi does, which has no message for people.

Importing this package is no place for an error either: what cannot be read is left out then, and refused when the first
task is made.
"""

import os
from pathlib import Path

from pipeline.config.experiment import settings_in
from pipeline.errors import SettingsError

# Luigi's own: it reads the file when it is imported.
OWN_FILE = "LUIGI_CONFIG_PATH"

_refused: list[SettingsError] = []


def own_file() -> Path | None:
    """The file that the environment names, if it can be read; else Luigi is kept from it."""
    given = os.environ.get(OWN_FILE)
    if given and not Path(given).exists():
        _refused.append(
            SettingsError(f"environment variable {OWN_FILE}: expected a settings file, found none: {given}")
        )
    elif given and _can_be_read(Path(given)):
        return Path(given)
    os.environ.pop(OWN_FILE, None)
    return None


def add(path: Path) -> None:
    """Let Luigi read a file after those before it."""
    if _can_be_read(path):
        import luigi.configuration

        luigi.configuration.add_config_path(str(path))


def check() -> None:
    """Refuse a file that could not be read.

    Raises:
        SettingsError: names it.
    """
    if _refused:
        raise _refused[0]


def _can_be_read(path: Path) -> bool:
    try:
        if path.exists():
            settings_in([path])
    except OSError as error:
        _refused.append(SettingsError(f"{path}: cannot be read: {error.strerror}"))
        return False
    except SettingsError as error:
        _refused.append(error)
        return False
    return True
