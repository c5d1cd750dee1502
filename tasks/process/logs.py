"""The log on stderr, as text or JSON (``[Storage] log_format``), with a progress bar in a terminal.

An error for the user is one message without a traceback. Any other exception is a defect and keeps its traceback.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from luigi.rpc import RPCError

from pipeline import progress
from pipeline.errors import PipelineError, SchedulerUnavailableError, causes, error_for_user, without_userinfo

# Most starts have no terminal and need not spend the time of these imports.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SCHEDULER_REMEDY = 'Start it with "luigid", or set TENSORCRAFT_SCHEDULER to local to run without it.'


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
        error = _error_of(record)
        if isinstance(error, PipelineError):
            about = {"msg": f"ERROR {type(error).__name__}: {error}", "args": (), "exc_info": None, "exc_text": None}
            record = logging.makeLogRecord({**record.__dict__, **about})
        elif record.levelno == logging.WARNING:
            about = {"msg": f"WARNING {record.getMessage()}", "args": ()}
            record = logging.makeLogRecord({**record.__dict__, **about})
        return without_userinfo(super().format(record))


class JsonLines(logging.Formatter):
    """One object per record, with the run id and the stage. Errors have their class, exit code and traceback."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        error, exc_info = _error_of(record), record.exc_info
        is_for_user = isinstance(error, PipelineError)
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": str(error) if is_for_user else record.getMessage(),
            "run_id": self._run_id,
            "stage": getattr(record, "stage", None),
        }
        if getattr(record, "run", ""):
            fields["run"] = record.run
        if error is not None:
            if is_for_user:
                exc_info = (type(error), error, None)
            fields |= {"error": type(error).__name__, "exit_code": getattr(error, "exit_code", 1)}
            fields |= {"traceback": self.formatException(exc_info)}
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
        record.run, record.prefix, record.stage = self.run, self._prefix, self.stage
        return super().format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record above the progress line. An error ends the line."""
        if record.levelno >= logging.ERROR:
            self.end_progress()
        if self._progress is None:
            super().emit(record)
        else:
            self._console.print(self.format(record), soft_wrap=True)

    @property
    def _prefix(self) -> str:
        return f"{self.run}: " if self.run else ""

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
        self._progress.update(task.id, description=self._prefix + what, completed=done, total=total, rate=rate)
        if done >= total:
            self.end_progress()

    def end_progress(self) -> None:
        """Clear the progress line."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
