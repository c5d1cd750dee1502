"""Settings of storage and operation: [Storage], [Notify], [Metrics], [Force]."""

from dataclasses import field
from typing import Annotated

from pipeline.settings.schema import NOT_IN_IDENTITY, SECRET, Settings, integer, one_of, text
from pipeline.settings.setting_error import refuse

STAGES = ("Source", "Records", "Train", "Report")
_WEB_ADDRESS = text("an address that begins with https:// or http://", r"https?://[^/\s]+(/\S*)?")
_CHANNEL = text("an address that begins with https://, or another one of apprise such as slack://", r"[a-z]+://[^\s]+")
# Credentials come from the environment, so the address contains no password.
_ENDPOINT = text(_WEB_ADDRESS.expected, r"https?://[^/\s@]+(/[^\s@]*)?")
# As a path gs://bucket is the folder "gs:".
_FOLDER = text("a folder on this machine", r"(?s)(?![a-zA-Z][a-zA-Z0-9+.-]*:/).*\S.*")
_REMOTE = r"(s3|gs|az)://[a-zA-Z0-9][a-zA-Z0-9._-]+(/[a-zA-Z0-9._=-]+)*/?"


class StorageSettings(Settings, section="Storage"):
    """The folder and the object store for everything the pipeline writes."""

    root: Annotated[str, _FOLDER] = "data"
    """Folder for everything the pipeline writes. A relative path starts at the folder of config.ini."""
    on_busy: Annotated[str, one_of("leave", "wait")] = "leave"
    """What to do if another run uses the same root. leave ends with exit code 5. wait continues when it is done."""
    log_format: Annotated[str, one_of("text", "json")] = "text"
    """Format of the log on stderr. text is for people and shows a live line at a terminal. json writes one object per
    line, with run id and stage."""
    remote: Annotated[str, text("s3://bucket/prefix, gs://bucket/prefix or az://container/prefix", _REMOTE)] = ""
    """Object store through which a team shares artifacts. Empty means none. Runs fetch artifacts from it and push new
    ones to it. Credentials come from the environment, such as AWS_ACCESS_KEY_ID. See docs/team.md."""
    remote_endpoint: Annotated[str, _ENDPOINT, SECRET] = ""
    """Address of a server that is compatible with S3. Empty means AWS."""
    push: Annotated[str, one_of("always", "never")] = "always"
    """Whether new artifacts are pushed to the remote."""
    on_remote_error: Annotated[str, one_of("continue", "fail")] = "continue"
    """What to do if the remote does not answer or refuses. continue works without it, and a later run pushes. fail
    ends with exit code 11. Use fail if a scheduler removes the root afterwards (docs/schedulers.md)."""
    keep_runs: Annotated[int, integer(0, 100_000)] = 0
    """Newest runs of each row that make nightly keeps. A row has the runs of one model that agree in hardware and
    recipe. A run is removed only if it is beyond both keep_runs and keep_days. If both are 0, nothing is removed.
    docs/unattended.md lists the runs that always stay."""
    keep_days: Annotated[int, integer(0, 100_000)] = 0
    """Days that make nightly keeps runs and dated reports. 0 means no limit."""

    def check(self) -> None:
        """Refuse an endpoint without a remote on S3."""
        if self.remote_endpoint and not self.remote.startswith("s3://"):
            refuse("Storage", "remote_endpoint", "nothing, as remote is not of S3", self.remote_endpoint)


class NotifySettings(Settings, section="Notify"):
    """Notifications of scheduled runs such as make nightly. Addresses for e-mail are in section [email] below."""

    webhook_url: Annotated[str, _CHANNEL, NOT_IN_IDENTITY, SECRET] = field(default="", repr=False)
    """Address that receives a message when a scheduled run fails, fails otherwise, or works again. HTTP gets JSON.
    Other addresses are those of apprise such as slack://... The address is a secret, so keep it in the environment
    as in docs/unattended.md. Empty means no message."""
    report_url: Annotated[str, _WEB_ADDRESS] = ""
    """Address at which people find the folder of the report. Empty means its path on this machine."""
    # Chat services and mail programs show no more.
    log_lines: Annotated[int, integer(0, 200)] = 20
    """Number of log lines to include in a message."""


class MetricsSettings(Settings, section="Metrics"):
    """Metrics of scheduled runs for monitoring."""

    prometheus_file: Annotated[str, text("a path that ends in .prom", r"(?s).*\.prom")] = ""
    """Text file for Prometheus's node exporter, in its textfile directory. Empty means none. Each scheduled run writes
    times, exit code, number of records, images/s and test accuracy."""


class ForceSettings(Settings, section="Force"):
    """Stages to rebuild although nothing has changed."""

    stage: Annotated[str, one_of(*STAGES, "")] = ""
    """Stage to rebuild, with all stages after it. Meant for one run: make pipeline FORCE=Train, or FORCE=1 for all."""
