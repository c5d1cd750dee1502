"""Supervise: runs Luigi in a process of its own, sees how it ends, remembers it and notifies those who subscribe.

``python -m tasks.unattended Nightly --date 2026-11-20``, with any task and flags of Luigi's. From outside, because a
run may end in ways it cannot report itself: killed for its memory, crashed in a library, refused before it began. The
exit code is the run's own, 128 more than the signal's number where one ended it; what becomes of the messages does not
change it.
"""

import collections
import contextlib
import io
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import luigi
import luigi.task_register
from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import PipelineError
from tasks import config_files
from tasks.operations.incidents import Outcome
from tasks.operations.notify import known_secrets, notify_and_remember
from tasks.operations.redaction import redact
from tasks.operations.state_file import reserve, state_name
from tasks.process import console, events
from tasks.report import Report
from tasks.sections import Metrics, Notify, schedule_name
from tasks.storage import PROJECT_FOLDER, Storage, flags_in, root_folder

_MODULE = ("--module", "tasks")

_logger = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the task, then remember, notify and measure; returns its exit code."""
    console.configure()
    with settings(argv):
        # What is wrong with the root, the run itself says.
        with contextlib.suppress(PipelineError):
            console.log_as(Storage().log_format)
        path, log_lines = state_path(), Notify().log_lines
        secrets = known_secrets()
        with _logging_failures("no disk space could be reserved for what became of this run"):
            if path:
                reserve(path)
        outcome = _supervise(argv, log_lines, secrets)
        with _logging_failures("what became of this run could not be remembered"):
            notify_and_remember(path, outcome)
        with _logging_failures("the figures for Prometheus could not be written"):
            _measure(path, outcome)
    return outcome.exit_code


@contextlib.contextmanager
def settings(argv: Sequence[str]) -> Iterator[None]:
    """The settings of the run; where it will be refused, those of the file and its storage root, to report that."""
    with contextlib.ExitStack() as stack:
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                stack.enter_context(CmdlineParser.global_instance([*_MODULE, *argv]))
            Notify(), Metrics(), Storage()
        except (SystemExit, PipelineError, luigi.task_register.TaskClassException):
            stack.close()
            stack.enter_context(CmdlineParser.global_instance([*_MODULE, Report.task_family, *_root_of(argv)]))
        yield


def _root_of(argv: Sequence[str]) -> list[str]:
    """The flag of the storage root out of a command line that is refused; one that is refused itself where it is wrong.

    What became of the run is remembered under its own root or nowhere: another one has an incident of its own.
    """
    flags = flags_in(argv)
    if flags is None:
        return ["--Storage-root="]
    return [] if flags["root"] is None else [f"--Storage-root={flags['root']}"]


def state_path() -> Path | None:
    """Where it is remembered what becomes of runs; None where the storage root is refused or cannot be used."""
    with contextlib.suppress(PipelineError):
        return root_folder() / state_name(schedule_name())
    return None


def _supervise(argv: Sequence[str], log_lines: int, secrets: set[str]) -> Outcome:
    """Run Luigi, pass its log on, and see how it ends."""
    started, clock = datetime.now(UTC), time.monotonic()
    # In memory, not a pipe: nobody reads before the end, and a long backfill has more events than a pipe holds.
    reported = os.memfd_create("events")
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks", *argv],
        env={**os.environ, events.DESCRIPTOR_VARIABLE: str(reported)},
        pass_fds=[reported],
        cwd=PROJECT_FOLDER,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    _pass_on_signals(process)
    last: collections.deque[str] = collections.deque(maxlen=max(log_lines, 1))
    error = ""
    for line in process.stderr:
        sys.stderr.write(line)
        sys.stderr.flush()
        last.append(redact(line.rstrip("\n"), secrets))
        error = error_in(last[-1]) or error
    code = process.wait()
    exit_code = code if code >= 0 else 128 - code
    stage, reason = _what_failed(reported)
    if exit_code and not reason:
        ended_by = f"ended by {signal.Signals(-code).name}" if code < 0 else ""
        reason = ended_by or error or (last[-1] if last else "")
    return Outcome(
        task=redact(_task_name(argv), secrets),
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        exit_code=exit_code,
        stage=stage if exit_code else "",
        reason=redact(reason, secrets) if exit_code else "",
        log=tuple(last)[-log_lines:] if log_lines else (),
        invocation=os.environ.get("INVOCATION_ID", ""),
    )


def error_in(line: str) -> str:
    """What a line of the log says has gone wrong, in either of the log's formats; empty where it is no error."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        entry = json.loads(line)
        if entry["level"] != "error":
            return ""
        return f"{entry['error']}: {entry['message']}" if "error" in entry else entry["message"].removeprefix("ERROR ")
    return line.partition("ERROR ")[2]


def _pass_on_signals(process: subprocess.Popen) -> None:
    """Let the run end in order before this process does. A terminal sends Ctrl-C to both by itself."""
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    signal.signal(signal.SIGINT, lambda *_: None)


def _what_failed(descriptor: int) -> tuple[str, str]:
    """The task that failed, or was at work when all ended, and why; empty where that was not reported."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        events_seen = [json.loads(line) for line in file.read().splitlines() if line.endswith(b"}")]
    for entry in events_seen:
        if entry["event"] == luigi.Event.FAILURE:
            return entry["task"], entry["reason"]
    begun = [entry["task"] for entry in events_seen if entry["event"] == luigi.Event.START]
    for entry in events_seen:
        if entry["event"] == luigi.Event.SUCCESS:
            begun.remove(entry["task"])
    return (begun[-1] if begun else ""), ""


def _task_name(argv: Sequence[str]) -> str:
    """What was asked for, for people: the task, and the date if it is of one."""
    words = [word for argument in argv for word in argument.split("=", 1)]
    dates = [date for flag, date in itertools.pairwise(words) if flag == "--date"]
    of = [f"of {name}"] if (name := config_files.requested_experiment()) else []
    return " ".join([words[0] if words else "", *dates, *of])


def _measure(state_path: Path | None, outcome: Outcome) -> None:
    path = Metrics().prometheus_file
    if not path:
        return
    from tasks.operations.monitoring import figures_of, write_figures

    write_figures(Path(path).expanduser(), figures_of(outcome, state_path))


@contextlib.contextmanager
def _logging_failures(what: str) -> Iterator[None]:
    """Nothing that goes wrong in reporting a run may change how it ended, or keep the rest from being reported."""
    try:
        yield
    except Exception as error:
        # The texts of some hold addresses.
        _logger.warning("%s: %s", what, error if isinstance(error, OSError | PipelineError) else type(error).__name__)
