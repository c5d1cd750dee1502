"""Sections of config.ini that belong to no stage, and the storage root."""

import argparse
import contextlib
import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path

import luigi
import luigi.configuration
from luigi.cmdline_parser import CmdlineParser

from pipeline.config.experiment import ExperimentSettings
from pipeline.config.storage import ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from pipeline.errors import StorageError
from tasks import config_files
from tasks.parameters import Section

_REPORT_NAME = "report.html"
# Kind, artefact, the name it has until it is published, and a file in it.
_LONGEST_BELOW_ROOT = 250


class Experiment(Section, parameters=ExperimentSettings):
    """Section [Experiment]."""


class Force(Section, parameters=ForceSettings):
    """Section [Force]."""


class Notify(Section, parameters=NotifySettings):
    """Section [Notify]."""


class Metrics(Section, parameters=MetricsSettings):
    """Section [Metrics]."""


class Storage(Section, parameters=StorageSettings):
    """Section [Storage]."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        StorageSettings(**{**self.param_kwargs, **_given_as_nothing()})


def _given_as_nothing() -> dict[str, str]:
    """The root, where the command line gives it as the empty text: Luigi takes that for not given."""
    command_line = CmdlineParser.get_instance()
    given = getattr(command_line.known_args, "Storage_root", None) if command_line else None
    return {"root": given} if given == "" else {}


def flags_in(argv: Sequence[str]) -> dict[str, str | None]:
    """The settings of [Storage] that a command line gives, be the rest of it wrong; root is empty if one of them is."""
    parser = argparse.ArgumentParser(add_help=False)
    for name, _ in Storage.get_params():
        parser.add_argument(f"--Storage-{name.replace('_', '-')}", dest=name)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            known, others = parser.parse_known_args(list(argv))
    except SystemExit:
        return {"root": ""}
    return {"root": ""} if any(flag.lower().startswith("--storage") for flag in others) else vars(known)


def log_format_of(argv: Sequence[str]) -> str:
    """``log_format`` before Luigi takes the command line, or where it does not take it."""
    in_file = luigi.configuration.get_config().get("Storage", "log_format", "text")
    return flags_in(argv).get("log_format") or in_file


def of_this_root(task_id: str) -> str:
    """The id by which a central scheduler knows a task: the same one on another storage root is another."""
    return f"{task_id}_{hashlib.sha256(str(root_folder()).encode()).hexdigest()[:10]}"


def root_folder() -> Path:
    """The storage root; a relative setting is taken from the project's folder, wherever Luigi was started.

    Raises:
        StorageError: the operating system takes no such path, lets nobody look there, or it leads nowhere.
    """
    given = Storage().root
    try:
        root = (config_files.PROJECT_FOLDER / Path(given).expanduser()).resolve()
        # Whether a name of an artefact's length fits behind it; such a folder need not be there.
        os.stat(root / ("x" * _LONGEST_BELOW_ROOT))
    except (FileNotFoundError, NotADirectoryError):
        return root
    # A home that is nobody's, and before Python 3.13 links in a circle.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise StorageError(
            f"{given}: cannot be used ({reason}). Set [Storage] root to the path of a folder, a short one, "
            "that this user may read and write."
        ) from None
    return root


def schedule_name() -> str:
    """The name of the experiment for files of its schedule. Empty means config.ini alone.

    Raises:
        SettingsError: there is no such experiment.
    """
    config_files.check()
    return config_files.requested_experiment() or Experiment().name


def report_path() -> str:
    """The address of the newest report, or its path if no address is set."""
    base = Notify().report_url
    return f"{base.rstrip('/')}/{_REPORT_NAME}" if base else str(root_folder() / "report" / _REPORT_NAME)
