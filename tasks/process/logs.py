"""Logs: a record as one line of text, or as one JSON object for those who collect them (``[Storage] log_format``).

Either way an error written for the user (``PipelineError``) is one message without a traceback, wherever in a chain of
causes it stands; any other exception is a defect and keeps its traceback.
"""

import json
import logging
from datetime import UTC, datetime

import luigi
from luigi.rpc import RPCError

from pipeline.errors import PipelineError, SchedulerUnavailableError, without_userinfo

#: What to do where Luigi's central scheduler does not answer.
SCHEDULER_REMEDY = "Start it with make scheduler, or run without it: SCHEDULER=local."


class TextLines(logging.Formatter):
    """One line of text, but for the traceback of a defect."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        error = for_the_user(record.exc_info[1]) if record.exc_info else None
        if error is None:
            return without_userinfo(super().format(record))
        plain = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None, "args": ()})
        plain.msg = f"ERROR {type(error).__name__}: {error}"
        return without_userinfo(super().format(plain))


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, run id, stage; the run of a sweep; an error's kind and code."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id
        self._stage: str | None = None
        luigi.Task.event_handler(luigi.Event.START)(self._begin)
        for event in (luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(self._end)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON; an error written for the user in its own words."""
        error = record.exc_info[1] if record.exc_info else None
        if (known := for_the_user(error)) is not None:
            about = {"exc_info": (type(known), known, None), "msg": str(known), "args": (), "exc_text": None}
            error, record = known, logging.makeLogRecord({**record.__dict__, **about})
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
            fields |= {"traceback": self.formatException(record.exc_info)}
        return without_userinfo(json.dumps(fields, ensure_ascii=False))

    def _begin(self, task: luigi.Task) -> None:
        self._stage = task.task_family

    def _end(self, *_: object) -> None:
        self._stage = None


def for_the_user(error: BaseException | None) -> PipelineError | None:
    """The error written for the user in a chain of causes: Luigi and Beam wrap what a stage raises."""
    while error is not None and not isinstance(error, PipelineError):
        if isinstance(error, RPCError):
            return SchedulerUnavailableError(f"{error}. {SCHEDULER_REMEDY}")
        error = error.__cause__ or error.__context__
    return error
