"""Sections [Notify] and [Metrics]: whom and what is told of runs without anyone watching (see unattended.py)."""

import luigi
from luigi.parameter import ParameterVisibility

from pipeline.config import MetricsSettings, NotifySettings
from tasks.settings import IntSetting


class Notify(luigi.Config):
    """Section [Notify]."""

    webhook_url = luigi.Parameter(
        default="", significant=False, visibility=ParameterVisibility.PRIVATE, description="Takes messages as JSON."
    )
    report_url = luigi.Parameter(default="", description="Where people find the folder of the report.")
    log_lines = IntSetting(default=20, description="Last lines of the log that are told.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        NotifySettings(**self.param_kwargs)


class Metrics(luigi.Config):
    """Section [Metrics]."""

    prometheus_file = luigi.Parameter(default="", description="Text file for Prometheus's node exporter.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        MetricsSettings(**self.param_kwargs)
