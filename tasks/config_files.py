"""The settings files of Luigi. Each is read here first, because Luigi's errors are no messages for users.

config.ini, central.ini, the file of the experiment and the file in ``LUIGI_CONFIG_PATH`` override each other in this
order. An invalid file is left out while the package is imported, and refused when the first task is made.
A wheel contains the defaults and the experiments. Files in the working directory override them. The first line of an
experiment's file is a comment that describes it. Several files may set the same name.
"""

import configparser
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import PLACES, SettingsError, closest
from pipeline.optional_packages import hidden
from pipeline.settings.storage import EXPERIMENT_NAME

#: The name of the experiment. make sets it from EXPERIMENT, and a command from its flag.
EXPERIMENT_VARIABLE, EXPERIMENT_FLAG = "TENSORCRAFT_EXPERIMENT", "--experiment"
#: Suffix of a file with the published results of an experiment.
PUBLISHED = ".published.json"
# Luigi's own variable. Luigi would read the file, valid or not, when it is imported.
_OWN_FILE = "LUIGI_CONFIG_PATH"

#: Section, or section and setting → the last file with it, relative to the project if possible.
places: dict[str, str] = {}
_refused: list[SettingsError] = []


def settings_folders() -> list[Path]:
    """Folders of config.ini, central.ini and experiments/. Files in the last one override those of the same name.

    A clone has one folder, its own. An installed wheel has its defaults and the working directory.
    """
    defaults = Path(__file__).resolve().parent / "defaults"
    # setup.py copies config.ini into a wheel.
    return [defaults, Path.cwd()] if (defaults / "config.ini").is_file() else [defaults.parent.parent]


def project_folder() -> Path:
    """Base folder of a relative storage root. It is the clone, or the working directory of an installed wheel."""
    return settings_folders()[-1]


def existing(name: str) -> list[Path]:
    """The settings files of a name in ``settings_folders``. A later file overrides the settings of an earlier one."""
    return [path for folder in settings_folders() if (path := folder / name).exists()]


def experiments(suffix: str = ".ini") -> dict[str, Path]:
    """Map each experiment to its settings file, or to one with another suffix. A later folder overrides an earlier."""
    files = (path for folder in settings_folders() for path in sorted((folder / "experiments").glob(f"*{suffix}")))
    return {name: path for path in files if re.fullmatch(EXPERIMENT_NAME, name := path.name.removesuffix(suffix))}


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


def take_experiment(argv: list[str]) -> None:
    """Move ``--experiment NAME`` from a command line to the environment, before the settings files are read."""
    # "search NAME" means "search --experiment NAME".
    if argv[1:2] == ["search"] and argv[2:3] and not argv[2].startswith("-"):
        argv[2:2] = [EXPERIMENT_FLAG]
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == EXPERIMENT_FLAG and (values := [value] if equals else argv[place + 1 : place + 2]):
            os.environ[EXPERIMENT_VARIABLE] = values[0]
            del argv[place : place + 2 - bool(equals)]
            return


def load() -> None:
    """Let Luigi read the settings files. Call this before Luigi is imported."""
    own_file, scheduler = os.environ.pop(_OWN_FILE, None), os.environ.get("TENSORCRAFT_SCHEDULER")
    # Luigi needs none of these here. They take longer to import than Luigi itself.
    with hidden("jsonschema", "tornado", *([] if scheduler == "central" else ["requests"])):
        import luigi.configuration

    files = existing("config.ini")
    port = os.environ["TENSORCRAFT_SCHEDULER_PORT"]
    if scheduler == "central" and not (port.isdecimal() and 0 < int(port) < 2**16):
        expected = "expected a port from 1 to 65535"
        _refused.append(SettingsError(f"TENSORCRAFT_SCHEDULER_PORT: {expected}, got {port!r}. Unset it to use 8082."))
    elif scheduler == "central":
        files += existing("central.ini")
    if experiment := experiments().get(requested_experiment()):
        files.append(experiment)
    if own_file:
        files.append(Path(own_file))
        # Processes that this one starts read or refuse it too.
        os.environ[_OWN_FILE] = own_file
    for path in files:
        try:
            sections = settings_in([path])
            # A user does not edit the copy of config.ini in an installed package.
            if path.parent not in settings_folders()[:-1]:
                base = project_folder()
                file = str(path.relative_to(base) if path.is_relative_to(base) else path)
                for title, names in sections.items():
                    places.update(dict.fromkeys((title, *(f"{title}.{name}" for name in names)), file))
            luigi.configuration.add_config_path(str(path))
        except OSError as error:
            _refused.append(SettingsError(f"settings file {path}: cannot be read ({error.strerror})."))
        except SettingsError as error:
            _refused.append(error)
    flags = [word.partition("=")[0] for word in sys.argv if word.startswith("--")]
    os.environ[PLACES] = json.dumps(dict.fromkeys(flags) | places)


def check() -> None:
    """Refuse settings files that cannot be read, and an experiment without a file."""
    if _refused:
        raise _refused[0]
    name, files = requested_experiment(), experiments()
    if name and name not in files:
        known, folder = ", ".join(files) or "none, there are none", project_folder() / "experiments"
        raise SettingsError(
            f"experiment: expected one of {known} in {folder}, got {name!r}.{closest(name, [*files])} "
            'To list them, run "tensorcraft experiments".'
        )


def requested_experiment() -> str:
    """The name of the settings file that the environment requests. Empty means none."""
    return os.environ.get(EXPERIMENT_VARIABLE, "").strip()
