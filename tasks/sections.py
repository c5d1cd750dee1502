"""Sections of config.ini that belong to no stage: [Experiment], [Force], [Notify], [Metrics]."""

from pipeline.config.experiment import ExperimentSettings
from pipeline.config.storage import ForceSettings, MetricsSettings, NotifySettings
from tasks import config_files
from tasks.parameters import Section
from tasks.storage import root_folder

_REPORT_NAME = "report.html"


class Experiment(Section, parameters=ExperimentSettings):
    """Section [Experiment]."""


class Force(Section, parameters=ForceSettings):
    """Section [Force]."""


class Notify(Section, parameters=NotifySettings):
    """Section [Notify]."""


class Metrics(Section, parameters=MetricsSettings):
    """Section [Metrics]."""


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
