"""Set up the log, exit codes and signals of a process, and report the errors that end it."""

import contextlib
import logging
import multiprocessing
import sys
import uuid
import warnings
from collections.abc import Iterator
from traceback import format_exception

import luigi.interface
import luigi.retcodes
from luigi.parameter import UnconsumedParameterWarning

from pipeline.errors import PipelineError, without_userinfo
from pipeline.stage_process import is_news, set_log_levels
from tasks.process import events, interrupt
from tasks.process.live import LiveHandler
from tasks.process.logs import JsonLines, TextLines, for_the_user

#: Of this process, and of the workers Luigi forks from it.
RUN_ID = uuid.uuid4().hex

_logger = logging.getLogger(__name__)


def configure() -> None:
    """Set up logging to stderr, exit codes and signals. Further calls change nothing."""
    if _handler():
        return
    handler = LiveHandler()
    handler.addFilter(is_news)
    handler.setFormatter(TextLines("%(asctime)s %(run)s%(message)s", datefmt="%H:%M:%S"))
    logging.getLogger().addHandler(handler)
    set_log_levels()
    logging.getLogger("luigi-interface").setLevel(luigi.interface.core().log_level)
    logging.getLogger("luigi-interface").addHandler(_ExitCode())
    # parameters.py refuses what Luigi only warns about.
    warnings.simplefilter("ignore", UnconsumedParameterWarning)
    sys.excepthook = _report_uncaught
    interrupt.listen()
    events.listen()


def _handler() -> LiveHandler | None:
    return next((one for one in logging.getLogger().handlers if isinstance(one, LiveHandler)), None)


def _writes_json() -> bool:
    handler = _handler()
    return handler is not None and isinstance(handler.formatter, JsonLines)


def log_as(log_format: str) -> None:
    """Log as ``[Storage] log_format`` requests, from now on. Call it when the console can report a bad setting."""
    if log_format == "text":
        _handler().show_progress()
    elif not _writes_json():
        _handler().setFormatter(JsonLines(RUN_ID))
        # Python writes them to stderr by itself.
        logging.captureWarnings(True)


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


@contextlib.contextmanager
def leaving_on_errors() -> Iterator[None]:
    """End the process at an error for the user. Luigi would show a traceback and continue while it collects tasks.

    Raises:
        SystemExit: with the exit code of the error.
    """
    try:
        yield
    except PipelineError as error:
        _logger.error("ERROR %s: %s", type(error).__name__, error)
        raise SystemExit(error.exit_code) from error


def _report_uncaught(kind: type[BaseException], error: BaseException, traceback: object) -> None:
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
