"""The log on stderr, exit codes, signals and events of a process, and the errors that end it.

An error for the user is one message without a traceback. Any other exception is a defect and keeps its traceback.
"""

import contextlib
import json
import logging
import mmap
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from traceback import format_exception
from typing import TYPE_CHECKING

import luigi.interface
import luigi.retcodes
import luigi.worker
from luigi.parameter import UnconsumedParameterWarning
from luigi.rpc import RPCError

from pipeline import progress
from pipeline.errors import PipelineError, SchedulerUnavailableError, causes, error_for_user, without_userinfo
from pipeline.stage_process import set_log_levels, should_log
from tasks.process import interrupt

# Most starts have no terminal and need not spend the time of these imports.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

#: Of this process, and of the workers Luigi forks from it.
RUN_ID = uuid.uuid4().hex
#: The descriptor to which a supervised process reports events: a file in memory, because the disk may be full.
EVENTS_VARIABLE = "TENSORCRAFT_EVENTS_FD"
# A line of at most this many bytes is written at once, even if several workers write.
_LONGEST_REASON = 2_000

SCHEDULER_REMEDY = 'Start it with "luigid", or set TENSORCRAFT_SCHEDULER to local to run without it.'

_logger = logging.getLogger(__name__)


def configure() -> None:
    """Set up logging to stderr, exit codes, signals and events. Further calls change nothing."""
    if _handler():
        return
    handler = LogHandler()
    handler.addFilter(should_log)
    handler.setFormatter(TextLines("%(asctime)s %(prefix)s%(message)s", datefmt="%H:%M:%S"))
    logging.getLogger().addHandler(handler)
    set_log_levels()
    logging.getLogger("luigi-interface").setLevel(luigi.interface.core().log_level)
    logging.getLogger("luigi-interface").addHandler(_ExitCode())
    # tasks/settings.py refuses what Luigi only warns about.
    warnings.simplefilter("ignore", UnconsumedParameterWarning)
    sys.excepthook = _report_uncaught
    interrupt.listen()
    if luigi.worker.worker().keep_alive:
        worker = os.getpid()
        for event in (luigi.Event.FAILURE, luigi.Event.BROKEN_TASK):
            # With keep_alive Luigi's worker would wait to try again. At this signal it leaves.
            luigi.Task.event_handler(event)(lambda *_: os.kill(worker, signal.SIGUSR1))
    # Luigi forks workers, which follow their tasks too.
    for event in (luigi.Event.START, luigi.Event.SUCCESS, luigi.Event.FAILURE):
        luigi.Task.event_handler(event)(partial(_follow, event))


def _handler() -> "LogHandler | None":
    return next((one for one in logging.getLogger().handlers if isinstance(one, LogHandler)), None)


def log_as(log_format: str) -> None:
    """Log as ``[Storage] log_format`` requests, from now on. Call it when the console can report a bad setting."""
    if log_format == "text":
        _handler().show_progress()
    elif not _writes_json():
        _handler().setFormatter(JsonLines())
        # Python writes them to stderr by itself.
        logging.captureWarnings(True)


def _writes_json() -> bool:
    return isinstance(getattr(_handler(), "formatter", None), JsonLines)


def name_run(name: str) -> None:
    """Name a run of a sweep in every line, until the next call. An empty name ends it."""
    if handler := _handler():
        handler.run = name


def show(error: PipelineError, *, log_format: str = "text") -> None:
    """Report an error that ends the process as one line, or as a JSON object."""
    if log_format == "json" or _writes_json():
        about = (type(error), error, error.__traceback__)
        record = _logger.makeRecord(_logger.name, logging.ERROR, __file__, 0, "%s", (error,), about)
        print(JsonLines().format(record), file=sys.stderr)
    else:
        print(f"ERROR {type(error).__name__}: {error}", file=sys.stderr)
    _tell_supervisor("", "", error)


@contextlib.contextmanager
def leaving_on_errors() -> Iterator[None]:
    """End the process at an error for the user. Luigi would show a traceback and continue while it collects tasks."""
    try:
        yield
    except PipelineError as error:
        show(error)
        raise SystemExit(error.exit_code) from error


def _report_uncaught(kind: type[BaseException], error: BaseException, traceback: object) -> None:
    if handler := _handler():
        handler.end_progress()
    if issubclass(kind, KeyboardInterrupt):
        if _writes_json():
            _logger.warning(interrupt.MESSAGE)
        else:
            print(f"\n{interrupt.MESSAGE}", file=sys.stderr)
    elif known := for_the_user(error):
        show(known)
    elif _writes_json():
        _logger.critical("%s", error, exc_info=(kind, error, traceback))
    else:
        print(without_userinfo("".join(format_exception(kind, error, traceback))), end="", file=sys.stderr)


def _follow(event: str, task: luigi.Task, error: BaseException | None = None) -> None:
    """Note the stage for the log and for a supervising process."""
    if handler := _handler():
        handler.stage = task.task_family if event == luigi.Event.START else None
    _tell_supervisor(event, task.task_family, error)


def _tell_supervisor(event: str, task: str, error: BaseException | None) -> None:
    """Report an event of a task, or an error that ends the process, see tasks/scheduled.py."""
    descriptor = os.environ.get(EVENTS_VARIABLE, "")
    if descriptor.isdigit():
        reason = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        os.write(int(descriptor), json.dumps([event, task, reason]).encode() + b"\n")


def what_failed(events: int) -> tuple[str, str]:
    """Name of the task that failed, or was running, and the reason, by the events of a supervised process."""
    running: list[str] = []
    with open(events, "rb") as file:
        file.seek(0)
        # A killed process may leave half a line.
        for event, task, reason in (json.loads(line) for line in file if line.endswith(b"]\n")):
            if reason:
                return task or (running[-1] if running else ""), reason
            if event == luigi.Event.START:
                running.append(task)
            else:
                running.remove(task)
    return (running[-1] if running else ""), ""


class _ExitCode(logging.Handler):
    """Gives Luigi the exit code of an error for the user that it logs. By itself it has one for all failures."""

    def __init__(self) -> None:
        super().__init__()
        # Stages may run in processes that Luigi forks. The first process learns only that they failed. This memory is
        # one byte for all of them, without the imports of multiprocessing.Value.
        self.shared = mmap.mmap(-1, 1)
        # The instance that Luigi reads when it is done: it keeps one for equal parameters.
        codes = luigi.retcodes.retcode()
        codes.task_failed = _SharedCode(codes.task_failed)
        codes.task_failed.shared = self.shared

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := for_the_user(record.exc_info[1])):
            self.shared[0] = luigi.retcodes.retcode().unhandled_exception = error.exit_code


class _SharedCode(int):
    """An exit code that is read only when Luigi multiplies it with 0 or 1, to compare it with the others."""

    def __mul__(self, other: int) -> int:
        return (self.shared[0] or int(self)) * other


def for_the_user(error: BaseException | None) -> PipelineError | None:
    """The error for the user in a chain of causes. A lost connection of Luigi to its central scheduler is one too."""
    if known := error_for_user(error):
        return known
    lost = next((one for one in causes(error) if isinstance(one, RPCError)), None)
    return lost and SchedulerUnavailableError(f"{lost}. {SCHEDULER_REMEDY}")


def _error_of(record: logging.LogRecord) -> BaseException | None:
    """The error that a record is about. The error for the user goes before the one that wraps it."""
    error = record.exc_info[1] if record.exc_info else None
    return for_the_user(error) or error


class TextLines(logging.Formatter):
    """One line of text per record, and the traceback of a defect."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        error, about = _error_of(record), {}
        if isinstance(error, PipelineError):
            about = {"msg": f"ERROR {type(error).__name__}: {error}", "args": (), "exc_info": None, "exc_text": None}
        elif record.levelno == logging.WARNING:
            about = {"msg": f"WARNING {record.getMessage()}", "args": ()}
        return without_userinfo(super().format(logging.makeLogRecord({**record.__dict__, **about})))


class JsonLines(logging.Formatter):
    """One object per record, with the run id and the stage. Errors have their class, exit code and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        error = _error_of(record)
        is_for_user = isinstance(error, PipelineError)
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": str(error) if is_for_user else record.getMessage(),
            "run_id": RUN_ID,
            "stage": getattr(record, "stage", None),
        }
        if getattr(record, "run", ""):
            fields["run"] = record.run
        if error is not None:
            fields |= {"error": type(error).__name__, "exit_code": getattr(error, "exit_code", 1)}
            about = (type(error), error, None) if is_for_user else record.exc_info
            fields |= {"traceback": self.formatException(about)}
        return without_userinfo(json.dumps(fields, ensure_ascii=False))


class LogHandler(logging.StreamHandler):
    """Writes log lines to stderr, and keeps the progress line below them. Both use one console."""

    def __init__(self) -> None:
        super().__init__()
        #: The name of the present run of a sweep, and the present stage.
        self.run, self.stage = "", None
        self._progress: Progress | None = None
        self._console: Console | None = None

    def show_progress(self) -> None:
        """Show progress from now on, if stderr is a terminal."""
        if self._console is None and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            progress.listen(self._update)

    def format(self, record: logging.LogRecord) -> str:
        """The record as the formatter writes it, with the run and the stage."""
        record.run, record.stage, record.prefix = self.run, self.stage, self.run and f"{self.run}: "
        return super().format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record above the progress line. An error ends the line."""
        if record.levelno >= logging.ERROR:
            self.end_progress()
        if self._progress is None:
            super().emit(record)
        else:
            self._console.print(self.format(record), soft_wrap=True)

    def _update(self, what: str, done: int, total: int, unit: str) -> None:
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            rate = TextColumn("{task.fields[rate]}")
            columns = (TextColumn("{task.description}"), BarColumn(), rate, TimeRemainingColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.add_task("", total=total, rate="")
            self._progress.start()
        (task,) = self._progress.tasks
        speed = task.finished_speed or task.speed
        rate = f"{speed:,.0f} {unit}/s" if speed else ""
        what = f"{self.run}: {what}" if self.run else what
        self._progress.update(task.id, description=what, completed=done, total=total, rate=rate)
        if done >= total:
            self.end_progress()

    def end_progress(self) -> None:
        """Clear the progress line."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
