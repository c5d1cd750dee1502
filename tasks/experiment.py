"""Experiment: which of the settings files in ``experiments/`` is in force, and what its runs are called.

``make pipeline EXPERIMENT=flowers`` names one in the environment: it is read after config.ini, and before a file named
by ``LUIGI_CONFIG_PATH``, which may be one of them itself. A file that is not there is refused when the first task is
made: importing this package is no place for an error that is written for people.
"""

import os
from pathlib import Path

import luigi

from pipeline.config.experiment import ExperimentSettings, experiment_files, require_experiment
from tasks import config_files

#: Set by make; empty: config.ini alone.
VARIABLE = "TENSORCRAFT_EXPERIMENT"
FOLDER = Path(__file__).resolve().parent.parent / "experiments"


class Experiment(luigi.Config):
    """Section [Experiment]. A label: no artefact depends on it, and another rebuilds nothing."""

    name = luigi.Parameter(default="", description="What the runs belong to; empty: called as their dataset is.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        ExperimentSettings(**self.param_kwargs)


def asked_for() -> str:
    """The settings file that the environment asks for, by its name; empty: none."""
    return os.environ.get(VARIABLE, "").strip()


def settings_file() -> Path | None:
    """That file; None where none is asked for, or there is no such file."""
    return experiment_files(FOLDER).get(asked_for())


def check() -> None:
    """Refuse settings files that cannot be read, and an experiment that is not there.

    Raises:
        SettingsError: names the file, or the environment names an experiment for which there is no file.
    """
    config_files.check()
    if name := asked_for():
        require_experiment(FOLDER, name)


def schedule_name() -> str:
    """What a schedule's reports and incidents of this experiment are kept under; empty: those of config.ini alone.

    Raises:
        SettingsError: there is no such experiment, or its name is none: it would name files, wherever it leads.
    """
    check()
    return asked_for() or Experiment().name
