"""Settings files, and the experiments that override config.ini ([Experiment]).

The first line of an experiment's file is a comment that describes it. Several files may set the same name.
"""

import configparser
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pipeline.errors import SettingsError, closest
from pipeline.settings.schema import Settings, text

#: Suffix of a file with the published results of an experiment.
PUBLISHED = ".published.json"
# It is also the name of a folder beside folders that are named by a date.
_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"


class ExperimentSettings(Settings, section="Experiment"):
    """The experiment of the runs. It is a label, so changing it rebuilds nothing."""

    name: Annotated[str, text("up to 64 letters, digits, _ and -, a letter first", _NAME)] = ""
    """Name of the experiment. Each experiment has its own scoreboard, and runs are compared within it only. Empty means
    the name of the dataset. Each file in experiments/ sets a name (`tensorcraft run --experiment flowers`)."""


def experiment_files(*folders: Path, suffix: str = ".ini") -> dict[str, Path]:
    """Map each experiment to its settings file, or to one with another suffix. A later folder overrides an earlier."""
    files = (path for folder in folders for path in sorted(folder.glob(f"*{suffix}")))
    return {name: path for path in files if re.fullmatch(_NAME, name := path.name.removesuffix(suffix))}


def require_experiment(folders: Sequence[Path], name: str) -> Path:
    """The settings file of an experiment. SettingsError: no folder contains it."""
    files = experiment_files(*folders)
    if name not in files:
        raise SettingsError(
            f"experiment: expected one of {', '.join(files) or 'none, there are none'} in {folders[-1]}, got {name!r}."
            f'{closest(name, [*files])} To list them, run "tensorcraft experiments".'
        )
    return files[name]


def description(path: Path) -> str:
    """The comment in the first line of a settings file. Empty if there is none."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("#").strip() if first.startswith("#") else ""


def settings_in(paths: Sequence[Path]) -> Mapping[str, Mapping[str, str]]:
    """Map each section to its settings. A file overrides earlier files, as in Luigi. SettingsError: one is invalid."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        for path in paths:
            parser.read_string(path.read_text(encoding="utf-8"), str(path))
            if parser.defaults():
                raise SettingsError(f"{path}: unknown section [DEFAULT]. Move its settings to their own sections.")
            for title in parser.sections():
                for name, value in parser[title].items():
                    if re.search(r"(?<!%)(?:%%)*%(?![%(])", value):
                        raise SettingsError(f"{path}: [{title}] {name}: expected %% for a percent sign, got {value!r}.")
    except (configparser.Error, UnicodeDecodeError, IsADirectoryError) as error:
        hint = "Write each section, such as [Train], once, and below it each of its settings, such as epochs = 3."
        raise SettingsError(f"{path}: no settings file in UTF-8: {' '.join(str(error).split())}. {hint}") from error
    return {title: dict(parser[title]) for title in parser.sections()}
