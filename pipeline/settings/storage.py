"""Settings of storage and operation ([Storage], [Experiment], [Notify], [Metrics] and [Force])."""

from dataclasses import field
from typing import Annotated

from pipeline.errors import refuse
from pipeline.settings.schema import NOT_IN_IDENTITY, SECRET, Settings, integer, one_of, text

#: Pattern of the name of an experiment. It is also the name of a folder beside folders that are named by a date.
EXPERIMENT_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
STAGES = ("Source", "Records", "Train", "Report")
_WEB_ADDRESS = text("an address that begins with https:// or http://", r"https?://[^/\s]+(/\S*)?")
# A request of an address without a valid host or port would be repeated for half a minute.
_HTTP = r"https?://([^\s/@]+@)?([\w.-]+|\[[\da-fA-F:.]+\])(:(\d{1,4}|[1-6]\d{4}))?([/?#]\S*)?"
_CHANNEL = text(
    "an address that begins with https://, or another one of apprise such as slack://", rf"{_HTTP}|(?!http)[a-z]+://\S+"
)
# Credentials come from the environment, so the address contains no password.
_ENDPOINT = text(_WEB_ADDRESS.expected, r"https?://[^/\s@]+(/[^\s@]*)?")
# Without this rule, gs://bucket would be a folder named "gs:".
_FOLDER = text("a folder on this machine", r"(?s)(?![a-zA-Z][a-zA-Z0-9+.-]*:/).*\S.*")
_REMOTE = r"(s3|gs|az)://[a-zA-Z0-9][a-zA-Z0-9._-]+(/[a-zA-Z0-9._=-]+)*/?"


class StorageSettings(Settings, section="Storage"):
    """Storage of artifacts, and behavior shared by all commands."""

    root: Annotated[str, _FOLDER] = "data"
    """Folder for everything the pipeline writes. A relative path starts at the folder of `config.ini`."""
    on_busy: Annotated[str, one_of("leave", "wait")] = "leave"
    """Behavior if another run uses the same root. `leave` ends the new run with exit code 5. `wait` starts it when the
    other run has ended."""
    log_format: Annotated[str, one_of("text", "json")] = "text"
    """Format of the log on stderr. `text` adds a progress line if stderr is a terminal. `json` writes one object per
    line, with the run id and the stage."""
    remote: Annotated[str, text("s3://bucket/prefix, gs://bucket/prefix or az://container/prefix", _REMOTE)] = ""
    """Object store through which a team shares artifacts. Empty means none. Each run downloads available artifacts from
    it and uploads new ones. Credentials come from the environment, for example from AWS_ACCESS_KEY_ID. See
    docs/how-to/share.md."""
    remote_endpoint: Annotated[str, _ENDPOINT, SECRET] = ""
    """Address of an S3-compatible server. Empty means AWS."""
    push: Annotated[str, one_of("always", "never")] = "always"
    """Whether runs upload new artifacts to the remote."""
    on_remote_error: Annotated[str, one_of("continue", "fail")] = "continue"
    """Behavior if the remote does not respond or rejects a request. `continue` works without the remote, and a later
    run uploads the artifacts. `fail` ends the run with exit code 11. Use `fail` if a scheduler deletes the root after
    the run (docs/how-to/schedule.md)."""
    keep_runs: Annotated[int, integer(0, 100_000)] = 0
    """Number of newest runs that `tensorcraft nightly` keeps per row. A row contains the runs of one model with the
    same hardware and training recipe. A run is removed only if it exceeds every limit that is set. If `keep_runs` and
    `keep_days` are both 0, nothing is removed. Some runs are always kept
    (docs/how-to/schedule.md#limit-the-disk-space)."""
    keep_days: Annotated[int, integer(0, 100_000)] = 0
    """Number of days for which `tensorcraft nightly` keeps runs and dated reports. 0 means no limit."""

    def check(self) -> None:
        """Refuse an endpoint without a remote on S3."""
        if self.remote_endpoint and not self.remote.startswith("s3://"):
            refuse("Storage", "remote_endpoint", "nothing, as remote is not of S3", self.remote_endpoint)


class ExperimentSettings(Settings, section="Experiment"):
    """The experiment of the runs. It is a label, so changing it rebuilds nothing."""

    name: Annotated[str, text("up to 64 letters, digits, _ and -, a letter first", EXPERIMENT_NAME)] = ""
    """Name of the experiment. Each experiment has its own scoreboard, and runs are compared within it only. Empty means
    the name of the dataset. Each file in experiments/ sets a name (`tensorcraft run --experiment flowers`)."""


class NotifySettings(Settings, section="Notify"):
    """Notifications of scheduled runs such as `tensorcraft nightly`. Section [email] has the addresses for e-mail."""

    webhook_url: Annotated[str, _CHANNEL, NOT_IN_IDENTITY, SECRET] = field(default="", repr=False)
    """Address that receives a message when a scheduled run fails, fails in a different way or recovers. HTTP addresses
    receive JSON. apprise handles other addresses, such as `slack://...`. The address is a secret, so store it in the
    environment (docs/how-to/schedule.md). Empty means no message."""
    report_url: Annotated[str, _WEB_ADDRESS] = ""
    """Web address of the report's folder, for links in messages. Empty means its path on this machine."""
    # Chat services and mail programs truncate longer messages.
    log_lines: Annotated[int, integer(0, 200)] = 20
    """Number of log lines to include in a message."""


class MetricsSettings(Settings, section="Metrics"):
    """Metrics of scheduled runs and of predictions for monitoring."""

    prometheus_file: Annotated[str, text("a path that ends in .prom", r"(?s).*\.prom")] = ""
    """Text file for the textfile collector of Prometheus's node exporter. Empty means none. Each scheduled run writes
    its times, exit code, number of records, images/s and test accuracy."""
    watch_predictions: Annotated[str, one_of("true", "false")] = "true"
    """Whether predicted labels, confidences and image sizes are counted per run and day. Scheduled runs then warn if
    recent predictions differ from those for the test split (docs/how-to/predict.md)."""


class ForceSettings(Settings, section="Force"):
    """Rebuilding of stages whose inputs have not changed."""

    stage: Annotated[str, one_of(*STAGES, "")] = ""
    """First stage to rebuild. All later stages are rebuilt too. Set it for a single run with `tensorcraft
    run --Force-stage Train`. `Source` rebuilds all stages."""


SECTIONS_WITHOUT_STAGE = (StorageSettings, ExperimentSettings, ForceSettings, NotifySettings, MetricsSettings)
