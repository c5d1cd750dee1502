"""Log lines as JSON objects, for those who collect them: ``[Storage] log_format = json``."""

import json
import logging
from datetime import UTC, datetime

import luigi


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, run id, stage; the run of a sweep; an error's kind and code."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id
        self._stage: str | None = None
        luigi.Task.event_handler(luigi.Event.START)(self._begin)
        for event in (luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(self._end)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        error = record.exc_info[1] if record.exc_info else None
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
        return json.dumps(fields, ensure_ascii=False)

    def _begin(self, task: luigi.Task) -> None:
        self._stage = task.task_family

    def _end(self, *_: object) -> None:
        self._stage = None
