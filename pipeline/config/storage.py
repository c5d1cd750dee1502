"""Settings of what lies beside the stages: [Storage], [Notify], [Metrics], [Force]."""

import re
from dataclasses import dataclass, field

from pipeline.config.refusal import in_range, one_of, refuse

STAGES = ("Source", "Records", "Train", "Report")
ON_BUSY = ("leave", "wait")
LOG_FORMATS = ("text", "json")
PUSH = ("always", "never")
ON_REMOTE_ERROR = ("continue", "fail")
_REMOTE = re.compile(r"(s3|gs|az)://[a-zA-Z0-9][a-zA-Z0-9._-]+(/[a-zA-Z0-9._=-]+)*/?")
# Runs, or days: nearly three hundred years.
MAX_KEPT = 100_000
# What a chat service or a mail still shows.
MAX_LOG_LINES = 200


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Where artefacts go, how long they are kept, and what if another process works there; section [Storage]."""

    root: str = "data"
    on_busy: str = "leave"
    log_format: str = "text"
    remote: str = ""
    remote_endpoint: str = ""
    push: str = "always"
    on_remote_error: str = "continue"
    keep_runs: int = 0
    keep_days: int = 0

    def __post_init__(self) -> None:
        # As a path gs://bucket is the folder "gs:", and nothing is that of the project.
        if not self.root.strip() or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", self.root):
            refuse("Storage", "root", "a folder on this machine", self.root)
        one_of("Storage", "on_busy", ON_BUSY, self.on_busy)
        one_of("Storage", "log_format", LOG_FORMATS, self.log_format)
        one_of("Storage", "push", PUSH, self.push)
        one_of("Storage", "on_remote_error", ON_REMOTE_ERROR, self.on_remote_error)
        # A password in it is not quoted.
        if self.remote and not _REMOTE.fullmatch(self.remote):
            given = self.remote if "@" not in self.remote else "something else"
            refuse("Storage", "remote", "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix", given)
        if self.remote_endpoint and (not _is_web_address(self.remote_endpoint) or "@" in self.remote_endpoint):
            refuse("Storage", "remote_endpoint", "an address that begins with https:// or http://", "something else")
        if self.remote_endpoint and not self.remote.startswith("s3://"):
            refuse("Storage", "remote_endpoint", "nothing, as remote is not of S3", self.remote_endpoint)
        in_range("Storage", "keep_runs", self.keep_runs, 0, MAX_KEPT)
        in_range("Storage", "keep_days", self.keep_days, 0, MAX_KEPT)


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Whom to tell of an unattended run that failed or works again; section [Notify]."""

    webhook_url: str = field(default="", repr=False)
    report_url: str = ""
    log_lines: int = 20

    def __post_init__(self) -> None:
        # Who knows the address can write to it: it is not quoted.
        if self.webhook_url and not _is_web_address(self.webhook_url):
            refuse("Notify", "webhook_url", "an address that begins with https:// or http://", "something else")
        if self.report_url and not _is_web_address(self.report_url):
            refuse("Notify", "report_url", "an address that begins with https:// or http://", self.report_url)
        in_range("Notify", "log_lines", self.log_lines, 0, MAX_LOG_LINES)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Where the figures of an unattended run are left for monitoring; section [Metrics]."""

    prometheus_file: str = ""

    def __post_init__(self) -> None:
        # The collector takes no others.
        if self.prometheus_file and not self.prometheus_file.endswith(".prom"):
            refuse("Metrics", "prometheus_file", "a path that ends in .prom", self.prometheus_file)


@dataclass(frozen=True, kw_only=True)
class ForceSettings:
    """What is rebuilt although nothing has changed; section [Force]."""

    stage: str = ""

    def __post_init__(self) -> None:
        one_of("Force", "stage", (*STAGES, ""), self.stage)


def _is_web_address(text: str) -> bool:
    return re.fullmatch(r"https?://[^/\s]+(/\S*)?", text) is not None
