"""Log records as lines of text or as JSON objects (``[Storage] log_format``).

An error for the user is one message without a traceback. Any other exception is a defect and keeps its traceback.
"""

import json
import logging
from datetime import UTC, datetime

import luigi
from luigi.rpc import RPCError

from pipeline.errors import PipelineError, SchedulerUnavailableError, causes, error_for_user, without_userinfo

SCHEDULER_REMEDY = "Start it with make scheduler, or run without it: SCHEDULER=local."


def for_the_user(error: BaseException | None) -> PipelineError | None:
    """The error for the user in a chain of causes. A lost connection of Luigi to its central scheduler is one too."""
    if known := error_for_user(error):
        return known
    lost = next((one for one in causes(error) if isinstance(one, RPCError)), None)
    return lost and SchedulerUnavailableError(f"{lost}. {SCHEDULER_REMEDY}")


def _plain(record: logging.LogRecord) -> tuple[logging.LogRecord, BaseException | None]:
    """The record with the message of its error for the user, if it has one, and its error."""
    error = record.exc_info[1] if record.exc_info else None
    if known := for_the_user(error):
        about = {"exc_info": None, "exc_text": None, "args": (), "msg": f"{known}"}
        return logging.makeLogRecord({**record.__dict__, **about}), known
    return record, error


class TextLines(logging.Formatter):
    """One line of text per record, and the traceback of a defect."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        record, error = _plain(record)
        if isinstance(error, PipelineError):
            record.msg = f"ERROR {type(error).__name__}: {record.msg}"
        return without_userinfo(super().format(record))


class JsonLines(logging.Formatter):
    """One object per record, with the run id and the stage. Errors have their class, exit code and traceback."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id
        self._stage: str | None = None
        luigi.Task.event_handler(luigi.Event.START)(lambda task: self._enter(task.task_family))
        for event in (luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(lambda *_: self._enter(None))

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        exc_info = record.exc_info
        record, error = _plain(record)
        if isinstance(error, PipelineError):
            exc_info = (type(error), error, None)
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "run_id": self._run_id,
            "stage": self._stage,
        }
        if getattr(record, "run", ""):
            fields["run"] = record.run
        if error is not None:
            fields |= {"error": type(error).__name__, "exit_code": getattr(error, "exit_code", 1)}
            fields |= {"traceback": self.formatException(exc_info)}
        return without_userinfo(json.dumps(fields, ensure_ascii=False))

    def _enter(self, stage: str | None) -> None:
        self._stage = stage
