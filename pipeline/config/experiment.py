"""Experiments: settings files by name, each a variation on config.ini; [Experiment].

A file's first line is a comment that says what it is. Its section [Experiment] names the experiment that its runs
belong to: several files may share one, such as a network as it was published and ours.
"""

import configparser
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.refusal import closest, refuse
from pipeline.errors import SettingsError

#: What ends the name of the file beside an experiment that has the figures published elsewhere.
PUBLISHED_SUFFIX = ".published.json"

# The dated reports of an experiment lie in a folder of its name, beside others that are named by a date.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Which experiment the runs belong to; section [Experiment]. Empty: the one that is called as their dataset is."""

    name: str = ""

    def __post_init__(self) -> None:
        if self.name and not _NAME.fullmatch(self.name):
            refuse("Experiment", "name", "up to 64 letters, digits, _ and -, a letter first", self.name)


def experiment_files(folder: Path) -> dict[str, Path]:
    """The settings files in a folder by the names they are asked for by."""
    return {path.stem: path for path in sorted(folder.glob("*.ini")) if _NAME.fullmatch(path.stem)}


def require_experiment(folder: Path, name: str) -> Path:
    """The settings file that is asked for by a name.

    Raises:
        SettingsError: there is none; names the nearest, and all there are.
    """
    files = experiment_files(folder)
    if name not in files:
        raise SettingsError(
            f"EXPERIMENT: expected one of {', '.join(files) or 'none, there are none'} in {folder}, got {name!r}."
            f"{closest(name, [*files])} make experiments says what each is."
        )
    return files[name]


def description(path: Path) -> str:
    """What a settings file says of itself: its first line, a comment; empty where there is none."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("#").strip() if first.startswith("#") else ""


def experiment_of(path: Path) -> str:
    """The experiment that the runs of a settings file belong to, "" where it leaves that to the dataset."""
    return settings_in([path]).get("Experiment", {}).get("name", "")


def settings_in(paths: Sequence[Path]) -> Mapping[str, Mapping[str, str]]:
    """Section → settings of files of which each overrides those before it, as Luigi reads them.

    Raises:
        SettingsError: one is no settings file.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        for path in paths:
            parser.read_string(path.read_text(encoding="utf-8"), str(path))
            _refuse_lone_percents(parser, path)
    except (configparser.Error, UnicodeDecodeError, IsADirectoryError) as error:
        raise SettingsError(f"{path}: no settings file in UTF-8: {' '.join(str(error).split())}") from error
    return {section: dict(parser[section]) for section in parser.sections()}


def _refuse_lone_percents(parser: configparser.ConfigParser, path: Path) -> None:
    for section in parser.sections():
        for name, value in parser[section].items():
            if re.search(r"(?<!%)(?:%%)*%(?![%(])", value):
                raise SettingsError(f"{path}: [{section}] {name}: expected %% for a percent sign, got {value!r}.")


def published_files(folder: Path) -> dict[str, Path]:
    """Experiment → the file beside it that has the figures published elsewhere."""
    files = sorted(folder.glob(f"*{PUBLISHED_SUFFIX}"))
    return {path.name.removesuffix(PUBLISHED_SUFFIX): path for path in files}
