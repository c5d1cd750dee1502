"""Scheduled runs. Luigi runs in a child process. Its outcome is recorded and measured, and a change of it is notified.

The parent also detects outcomes that a run cannot report itself, such as a kill, a crash or a refused setting. The exit
code is that of the run, or 128 plus the number of the signal that ended it.
"""

import collections
import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import filelock
import luigi
import luigi.notifications
import luigi.task_register
import tenacity

from pipeline.artifacts import layout
from pipeline.errors import HIDDEN, PipelineError, without_userinfo
from pipeline.optional_packages import install_command
from pipeline.problems.problem import units_of
from tasks import config_files
from tasks.process import console
from tasks.report import Report
from tasks.settings import Metrics, Notify, child_command, in_force, outcome_path, report_page, words_and_flags
from tasks.stage import stages_up_to
from tasks.train import Train

if TYPE_CHECKING:
    from pipeline.runs.record import RunRecord

SCHEMA_VERSION = 2
#: Ways to send a message.
CHANNELS = ("webhook", "mail")
# Six attempts within about half a minute.
_retrying = tenacity.retry(
    stop=tenacity.stop_after_attempt(6),
    wait=tenacity.wait_exponential(multiplier=1),
    retry=tenacity.retry_if_result(lambda is_accepted: not is_accepted),
    retry_error_callback=lambda _: False,
)
_TIMEOUT_SECONDS = 5
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential|webhook", re.IGNORECASE)
# A shorter value would also match ordinary words.
_SHORTEST_SECRET = 6

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a scheduled run ended. Times are ISO 8601 in UTC."""

    #: Name and date.
    task: str
    started_at: str
    seconds: float
    exit_code: int
    #: The task that failed, or was running at the end.
    stage: str = ""
    reason: str = ""
    log: Sequence[str] = ()
    #: systemd's id of the run.
    invocation: str = ""
    #: When the last run that succeeded ended.
    last_success: str | None = None
    #: When the first failed run of the present, or just ended, incident started.
    failing_since: str | None = None
    #: Channels that are set up, and accepted the message or need none.
    notified: tuple[str, ...] = ()

    def ended_at(self) -> datetime:
        """Time of the end."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=self.seconds)

    def after(self, previous: "Outcome | None", channels: Sequence[str] = CHANNELS) -> "Outcome":
        """The outcome with the state that follows from the previous one, for the channels that are set up."""
        # The first run follows a success of which nobody had to be notified.
        previous = previous or replace(self, exit_code=0)
        was_failing = previous.exit_code != 0
        if self.exit_code:
            # The reason does not distinguish failures, because it may contain changing numbers.
            is_resolved = was_failing and (previous.stage, previous.exit_code) == (self.stage, self.exit_code)
            return replace(
                self,
                last_success=previous.last_success,
                failing_since=previous.failing_since if was_failing else self.started_at,
                notified=previous.notified if is_resolved else (),
            )
        notified = () if was_failing else previous.notified if previous.failing_since else channels
        return replace(
            self,
            last_success=self.ended_at().isoformat(timespec="seconds"),
            # The message of the recovery may be pending.
            failing_since=previous.failing_since if was_failing or {*channels} - {*notified} else None,
            notified=notified,
        )


def read_outcome(path: Path) -> Outcome | None:
    """The recorded outcome. None if there is none, or the file is damaged."""
    try:
        content = json.loads(path.read_bytes())
        if (version := content.pop("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}")
        outcome = Outcome(**content | {"notified": tuple(content["notified"])})
        outcome.ended_at()
        return outcome
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s cannot be read (%r). This run replaces the file.", path, error)
    return None


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Replace the file atomically."""
    # The same name each time, so that a full disk leaves one file at most.
    temporary = path.with_name(f".{path.name}.tmp")
    content = {"schema_version": SCHEMA_VERSION, **asdict(outcome)}
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8", errors="replace")
    os.replace(temporary, path)


def outcome_from_systemd(environment: Mapping[str, str]) -> Outcome:
    """The outcome of a run by the variables that systemd.exec(5) describes."""
    code, status = environment.get("MONITOR_EXIT_CODE", ""), environment.get("MONITOR_EXIT_STATUS", "")
    return Outcome(
        task=environment.get("MONITOR_UNIT", "a run"),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0,
        # After a time limit systemd may report the status 0.
        exit_code=(int(status) if status.isdigit() else 128 + getattr(signal, f"SIG{status}", 0)) or 1,
        reason=f"systemd: {environment.get('MONITOR_SERVICE_RESULT', 'failure')} ({code} {status})",
        invocation=environment.get("MONITOR_INVOCATION_ID", "unknown"),
    )


def redact(text: str, secrets: set[str]) -> str:
    """The text without the secrets, and without user names and passwords in addresses."""
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return without_userinfo(text)


def message(outcome: Outcome) -> dict[str, object]:
    """The notification as plain data. ``text`` is the sentence that chat services show."""
    host, report, text = socket.gethostname(), "", f"succeeded, after failures since {outcome.failing_since}"
    with contextlib.suppress(PipelineError):
        base = Notify().report_url
        report = f"{base.rstrip('/')}/{layout.REPORT_PAGE}" if base else str(report_page())
    if outcome.exit_code:
        where = f" in {outcome.stage}" if outcome.stage else ""
        text = f"failed{where} with exit code {outcome.exit_code}: {outcome.reason}"
    return {
        "text": f"{outcome.task} on {host}: {text}",
        "event": "failure" if outcome.exit_code else "recovery",
        "host": host,
        **{name: getattr(outcome, name) for name in ("task", "stage", "reason", "exit_code", "started_at", "seconds")},
        "since": outcome.failing_since,
        "report": report,
        "log": list(outcome.log),
    }


def send(address: str, content: Mapping[str, object]) -> bool:
    """Send the message, and log no address, because it is a secret. Return whether it was accepted."""
    is_accepted = (_post if address.startswith("http") else _send_by_apprise)(address, content)
    if not is_accepted:
        _logger.warning("The notification was not accepted. The next run sends it again.")
    return is_accepted


@_retrying
def _post(address: str, content: Mapping[str, object]) -> bool:
    import requests

    try:
        # A server must not forward the message to another server.
        answer = requests.post(address, json=content, allow_redirects=False, timeout=_TIMEOUT_SECONDS)
    except requests.RequestException as error:
        _logger.warning("The webhook did not respond (%s).", type(error).__name__)
        return False
    if answer.status_code >= 300:
        _logger.warning("The webhook responded with status %d.", answer.status_code)
    return answer.status_code < 300


def _send_by_apprise(address: str, content: Mapping[str, object]) -> bool:
    try:
        import apprise
    except ModuleNotFoundError:
        _logger.warning("The package apprise is not installed. Install it with: %s", install_command("notify"))
        return False
    channel = apprise.Apprise(asset=apprise.AppriseAsset(http_redirects=False))
    logger = logging.getLogger("apprise")
    # Apprise logs an address that it cannot parse.
    logger.setLevel(logging.CRITICAL)
    is_resolved = channel.add(address)
    logger.setLevel(logging.WARNING)
    if not is_resolved:
        _logger.warning("[Notify] webhook_url is incomplete, or apprise does not support this kind of address.")
    return is_resolved and _retrying(channel.notify)(title=content["text"], body=_as_text(content))


def _as_text(content: Mapping[str, object]) -> str:
    names = ("text", "stage", "reason", "exit_code", "started_at", "report")
    return "\n".join([*(f"{name}: {content[name]}" for name in names), "", *content["log"]])


@contextlib.contextmanager
def settings(argv: Sequence[str]) -> Iterator[None]:
    """Apply the settings of the run. If they are refused, only those of storage and notifications count."""
    flags = words_and_flags(argv)[1].items()
    words = [flag if value is None else f"{flag}={value}" for flag, value in flags]
    storage = [word for word in words if word.lower().startswith("--storage")]
    notify = [word for word in words if word.startswith(("--Notify-", "--Metrics-"))]
    # The settings refuse an empty root.
    no_root, report = "--Storage-root=", Report.task_family
    with contextlib.ExitStack() as stack:
        for words in (argv, [report, *storage, *notify], [report, no_root, *notify], [report, no_root]):
            try:
                stack.enter_context(in_force(["--module", "tasks", *words]))
                Notify(), Metrics()
                break
            except (SystemExit, PipelineError, luigi.task_register.TaskClassException):
                stack.close()
        yield


def _secrets() -> set[str]:
    address = Notify().webhook_url
    secrets = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    return secrets | {address, address.partition("://")[2].partition("/")[2], luigi.notifications.smtp().password or ""}


def run_child(argv: Sequence[str]) -> Outcome:
    """Run a Luigi task in a child process, and pass on its log. Return the outcome without its state."""
    log_lines, secrets = Notify().log_lines, _secrets()
    started, clock = datetime.now(UTC), time.monotonic()
    # A file in memory, because nobody reads before the end and a long backfill has more events than a pipe holds.
    events = os.memfd_create("events")
    command, environment = child_command(*argv, **{console.EVENTS_VARIABLE: str(events)})
    streams = {"pass_fds": [events], "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    process = subprocess.Popen(command, env=environment, cwd=config_files.project_folder(), **streams)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    # A terminal sends Ctrl-C to both processes.
    signal.signal(signal.SIGINT, lambda *_: None)
    last: collections.deque[str] = collections.deque(maxlen=max(log_lines, 1))
    for line in process.stderr:
        sys.stderr.write(line)
        sys.stderr.flush()
        last.append(redact(line.rstrip("\n"), secrets))
    code = process.wait()
    stage, reason = console.what_failed(events)
    if not reason:
        reason = f"ended by {signal.Signals(-code).name}" if code < 0 else last[-1] if last else ""
    words, flags = words_and_flags(argv)
    experiment = config_files.requested_experiment()
    task = (*words[:1], flags.get("--date"), experiment and f"of {experiment}")
    return Outcome(
        task=redact(" ".join(filter(None, task)), secrets),
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        exit_code=code if code >= 0 else 128 - code,
        stage=stage if code else "",
        reason=redact(reason, secrets) if code else "",
        log=list(last)[-log_lines:] if log_lines else [],
        invocation=os.environ.get("INVOCATION_ID", ""),
    )


def record(outcome: Outcome) -> Outcome:
    """Notify if the outcome is news, write it and measure. No failure here changes the exit code of the run."""
    path = outcome_path()
    with contextlib.ExitStack() as stack:
        if path:
            with _logging_failures(f"{path} was not locked"):
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(filelock.FileLock(path.with_name(f".{path.name}.lock")))
        channels = tuple(compress(CHANNELS, (Notify().webhook_url, luigi.notifications.email().receiver)))
        outcome = outcome.after(read_outcome(path) if path else None, channels)
        # Channels are independent, so that a failed one does not affect the others.
        for channel in channels:
            if channel in outcome.notified:
                continue
            with _logging_failures(f"The message was not sent by {channel}"):
                content = message(outcome)
                if channel == "mail":
                    # Luigi logs its own failures.
                    luigi.notifications.send_error_email(content["text"], _as_text(content))
                if channel == "mail" or send(Notify().webhook_url, content):
                    outcome = replace(outcome, notified=(*outcome.notified, channel))
        if path:
            with _logging_failures("The outcome of this run was not recorded"):
                write_outcome(path, outcome)
    if file := Metrics().prometheus_file:
        with _logging_failures("The metrics for Prometheus were not written"):
            write_metrics(Path(file).expanduser(), outcome, *_current_artifacts())
    return outcome


@contextlib.contextmanager
def _logging_failures(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Some messages contain addresses.
        _logger.warning("%s: %s", what, error if isinstance(error, OSError | PipelineError) else type(error).__name__)


def write_metrics(
    path: Path, outcome: Outcome, manifests: Mapping[str, Mapping], runs: "Iterable[RunRecord]" = ()
) -> None:
    """Replace a file for the textfile collector of Prometheus's node exporter.

    ``manifests`` maps a stage to the manifest of its artifact. Names of metrics follow the conventions of Prometheus.
    """
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    from pipeline.runs.record import names

    registry, gauges = CollectorRegistry(), {}

    def put(name: str, text: str, value: float | None, **labels: object) -> None:
        """Set one sample, whose gauge begins with its first value. None leaves it out."""
        if value is None:
            return
        if name not in gauges:
            gauges[name] = Gauge(f"tensorcraft_{name}", text, tuple(labels), registry=registry)
        (gauges[name].labels(**labels) if labels else gauges[name]).set(value)

    put("run_exit_code", "Exit code of the last scheduled run.", outcome.exit_code)
    put("run_duration_seconds", "Wall-clock time of the last scheduled run.", outcome.seconds)
    put("run_end_timestamp_seconds", "When the last scheduled run ended.", outcome.ended_at().timestamp())
    success = outcome.last_success and datetime.fromisoformat(outcome.last_success).timestamp()
    put("success_timestamp_seconds", "When the last scheduled run that succeeded ended.", success)
    for stage, manifest in manifests.items():
        text = "Wall-clock time of the stage when it was last built."
        put("stage_duration_seconds", text, manifest.get("seconds"), stage=stage)
        for split, about in manifest.get("splits", {}).items():
            put("records", "Examples in the records.", about.get("num_examples"), split=split)
    for run in runs:
        # Settings distinguish the runs of a sweep. A fingerprint would begin new time series every day.
        labels = {name: getattr(run, name) for name in ("experiment", *names("setting"), "precision")}
        units = units_of(run.problem, run.tokens).plural
        put(f"train_{units}_per_second", "Throughput of training.", run.examples_per_second, **labels)
        put("test_accuracy_ratio", "Accuracy on the test split, from 0 to 1.", run.test_accuracy, **labels)
        put("test_loss_nats", "Loss on the test split, in nats per image, character or byte.", run.test_loss, **labels)
    write_to_textfile(str(path), registry)


def _current_artifacts() -> "tuple[dict[str, Mapping], list[RunRecord]]":
    """The manifest of each stage of the present settings, and the records of their runs."""
    from pipeline.runs.record import read_record

    manifests, runs = {}, []
    with contextlib.suppress(PipelineError):
        for stage in stages_up_to(Report()):
            # An artifact that does not exist has no numbers.
            with contextlib.suppress(PipelineError):
                manifests[stage.task_family] = stage.output().manifest()
                if isinstance(stage, Train):
                    runs.append(read_record(stage.output().folder))
    return manifests, runs
