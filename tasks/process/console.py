"""What a person at the terminal sees: one line per event, one message per error, a quiet Ctrl-C.

What a line says and how is in logs.py; here it is set up, once, with all else that a process of ours begins with.
"""

import contextlib
import logging
import sys
import uuid
import warnings
from collections.abc import Iterator
from traceback import format_exception

import luigi.interface
from luigi.parameter import UnconsumedParameterWarning

from pipeline.errors import PipelineError, without_userinfo
from pipeline.stage_process import is_news, set_log_levels
from tasks.process import events, interrupt
from tasks.process.exit_code import ExitCode
from tasks.process.live import LiveHandler
from tasks.process.logs import JsonLines, TextLines, for_the_user

#: Of this process, and of the workers Luigi forks from it.
RUN_ID = uuid.uuid4().hex

_HANDLER_NAME = "tensorcraft-console"

_logger = logging.getLogger(__name__)


def configure() -> None:
    """Set up logging to stderr, exit codes and signals; further calls change nothing."""
    if any(handler.name == _HANDLER_NAME for handler in logging.getLogger().handlers):
        return
    handler = LiveHandler()
    handler.name = _HANDLER_NAME
    handler.addFilter(is_news)
    handler.setFormatter(TextLines("%(asctime)s %(run)s%(message)s", datefmt="%H:%M:%S"))
    logging.getLogger().addHandler(handler)
    set_log_levels()
    logging.getLogger("luigi-interface").setLevel(luigi.interface.core().log_level)
    logging.getLogger("luigi-interface").addHandler(ExitCode())
    # config.py's own check of the file is stricter: it refuses what Luigi only warns about.
    warnings.simplefilter("ignore", UnconsumedParameterWarning)
    sys.excepthook = _report_uncaught
    interrupt.listen()
    events.listen()


def log_as(log_format: str) -> None:
    """Log from now on as ``[Storage] log_format`` says; first asked for when the console can report a bad setting."""
    (handler,) = (handler for handler in logging.getLogger().handlers if handler.name == _HANDLER_NAME)
    if log_format == "text":
        handler.show_progress()
    elif not _writes_json():
        handler.setFormatter(JsonLines(RUN_ID))
        # Python writes them to stderr by itself.
        logging.captureWarnings(True)


def name_run(name: str) -> None:
    """Name the run of a sweep that is at work, in every line until another is; empty: none."""
    for handler in logging.getLogger().handlers:
        if handler.name == _HANDLER_NAME:
            handler.run = name


def show(error: PipelineError, *, log_format: str = "text") -> None:
    """Report an error that ends the process: one line, or one object where the log is, or was to be, of those."""
    if _writes_json():
        _logger.error("%s", error, exc_info=error)
    elif log_format == "json":
        about = (type(error), error, error.__traceback__)
        record = _logger.makeRecord(_logger.name, logging.ERROR, __file__, 0, "%s", (error,), about)
        print(JsonLines(RUN_ID).format(record), file=sys.stderr)
    else:
        print(f"ERROR {type(error).__name__}: {error}", file=sys.stderr)


@contextlib.contextmanager
def leaving_on_errors() -> Iterator[None]:
    """For where Luigi asks what there is to do: it would show a traceback of any exception there, and go on.

    Raises:
        SystemExit: for an error written for the user, with its exit code.
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
    elif (known := for_the_user(error)) is not None:
        show(known)
    elif _writes_json():
        _logger.critical("%s", error, exc_info=(kind, error, traceback))
    else:
        print(without_userinfo("".join(format_exception(kind, error, traceback))), end="", file=sys.stderr)


def _writes_json() -> bool:
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)
