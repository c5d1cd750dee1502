"""Subscriptions: sections [Notify] and [Metrics], who is notified of scheduled runs, and where people find the report.

Settings alone, which a stage may ask too: what is done with them is in operations/.
"""

from pathlib import Path

import luigi
from luigi.parameter import ParameterVisibility

from pipeline.config.storage import MetricsSettings, NotifySettings
from tasks.settings import IntSetting
from tasks.storage import root_folder

_REPORT_NAME = "report.html"


class Notify(luigi.Config):
    """Section [Notify]."""

    webhook_url = luigi.Parameter(
        default="", significant=False, visibility=ParameterVisibility.PRIVATE, description="Takes messages as JSON."
    )
    report_url = luigi.Parameter(default="", description="Where people find the folder of the report.")
    log_lines = IntSetting(default=20, description="Last lines of the log that are in a message.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        NotifySettings(**self.param_kwargs)


class Metrics(luigi.Config):
    """Section [Metrics]."""

    prometheus_file = luigi.Parameter(default="", description="Text file for Prometheus's node exporter.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        MetricsSettings(**self.param_kwargs)


def report_path() -> str:
    """Where people find the newest report: its address if one is set, else its path."""
    return _address() or str(_report())


def report_url() -> str:
    """The same for a browser."""
    return _address() or _report().as_uri()


def _address() -> str:
    base = Notify().report_url
    return f"{base.rstrip('/')}/{_REPORT_NAME}" if base else ""


def _report() -> Path:
    return root_folder() / "report" / _REPORT_NAME
