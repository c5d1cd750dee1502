"""Set up the log, exit codes, signals and events of a process, and report the errors that end it."""

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Iterator
from functools import partial
from traceback import format_exception

import luigi.interface
import luigi.retcodes
import luigi.worker
from luigi.parameter import UnconsumedParameterWarning

from pipeline.errors import PipelineError, without_userinfo
from pipeline.stage_process import set_log_levels, should_log
from tasks.process import interrupt
from tasks.process.logs import JsonLines, LogHandler, TextLines, for_the_user

#: Of this process, and of the workers Luigi forks from it.
RUN_ID = uuid.uuid4().hex
#: The descriptor to which a supervised process reports events: a file in memory, because the disk may be full.
EVENTS_VARIABLE = "TENSORCRAFT_EVENTS_FD"
# A line of at most this many bytes is written at once, even if several workers write.
_LONGEST_REASON = 2_000

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
    # parameters.py refuses what Luigi only warns about.
    warnings.simplefilter("ignore", UnconsumedParameterWarning)
    sys.excepthook = _report_uncaught
    interrupt.listen()
    _listen_to_events()


def _handler() -> LogHandler | None:
    return next((one for one in logging.getLogger().handlers if isinstance(one, LogHandler)), None)


def log_as(log_format: str) -> None:
    """Log as ``[Storage] log_format`` requests, from now on. Call it when the console can report a bad setting."""
    if log_format == "text":
        _handler().show_progress()
    elif not _writes_json():
        _handler().setFormatter(JsonLines(RUN_ID))
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
        print(JsonLines(RUN_ID).format(record), file=sys.stderr)
    else:
        print(f"ERROR {type(error).__name__}: {error}", file=sys.stderr)
    _tell_supervisor("", "", error)


@contextlib.contextmanager
def leaving_on_errors() -> Iterator[None]:
    """End the process at an error for the user. Luigi would show a traceback and continue while it collects tasks."""
    try:
        yield
    except PipelineError as error:
        _logger.error("ERROR %s: %s", type(error).__name__, error)
        _tell_supervisor("", "", error)
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


def _listen_to_events() -> None:
    """Follow each task that begins, ends or fails, also in workers that Luigi forks."""
    if luigi.worker.worker().keep_alive:
        worker = os.getpid()
        for event in (luigi.Event.FAILURE, luigi.Event.BROKEN_TASK):
            # With keep_alive Luigi's worker would wait to try again. At this signal it leaves.
            luigi.Task.event_handler(event)(lambda *_: os.kill(worker, signal.SIGUSR1))
    for event in (luigi.Event.START, luigi.Event.SUCCESS, luigi.Event.FAILURE):
        luigi.Task.event_handler(event)(partial(_follow, event))


def _follow(event: str, task: luigi.Task, error: BaseException | None = None) -> None:
    """Note the stage for the log and for a supervising process."""
    if handler := _handler():
        handler.stage = task.task_family if event == luigi.Event.START else None
    _tell_supervisor(event, task.task_family, error)


def _tell_supervisor(event: str, task: str, error: BaseException | None) -> None:
    """Report an event of a task, or an error that ends the process, see tasks/schedule/scheduled.py."""
    descriptor = os.environ.get(EVENTS_VARIABLE, "")
    if descriptor.isdigit():
        reason = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        os.write(int(descriptor), json.dumps([event, task, reason]).encode() + b"\n")


class _ExitCode(logging.Handler):
    """Gives Luigi the exit code of an error for the user that it logs. By itself it has one for all failures."""

    def __init__(self) -> None:
        super().__init__()
        # Stages may run in processes that Luigi forks. The first process learns only that they failed.
        self.shared = multiprocessing.Value("i", 0)
        # The instance that Luigi reads when it is done: it keeps one for equal parameters.
        codes = luigi.retcodes.retcode()
        codes.task_failed = _SharedCode(codes.task_failed)
        codes.task_failed.shared = self.shared

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := for_the_user(record.exc_info[1])):
            self.shared.value = luigi.retcodes.retcode().unhandled_exception = error.exit_code


class _SharedCode(int):
    """An exit code that is read only when Luigi multiplies it with 0 or 1, to compare it with the others."""

    def __mul__(self, other: int) -> int:
        return (self.shared.value or int(self)) * other
