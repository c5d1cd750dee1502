"""Worker logs: what workers of a cluster log is told by the process that submitted the job (the shards' aid).

An engine keeps its workers' logs on their machines, each engine in a way of its own. Warnings and worse, whoever gives
them, and all that this project says are left beside the notes of blocks too, and told where those are counted.
"""

import json
import logging
import os
import socket
import threading
import uuid

from pipeline.artefacts.staleness import printable
from pipeline.errors import RemoteError
from pipeline.shards.shared import Shared

#: Beside the notes, a file for each message: objects cannot be appended to.
LOGS = "logs"
# Of one process: an engine's own may warn without end.
_MOST_MESSAGES = 200
_MOST_LETTERS = 4_000
_OURS = "pipeline"

_logger = logging.getLogger(__name__)


class _Sender(logging.Handler):
    """Leaves messages as long as the job's first file is there: a worker may outlive its job."""

    def __init__(self, shared: Shared, marker: str) -> None:
        super().__init__()
        self._shared, self._marker = shared, marker
        self._name, self._sent, self._busy = uuid.uuid4().hex, 0, threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Ours, and what others warn of."""
        ours = record.name == _OURS or record.name.startswith(f"{_OURS}.")
        return ours or record.levelno >= logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        # What is logged of the sending itself is not sent.
        if getattr(self._busy, "sending", False):
            return
        self._busy.sending = True
        try:
            self._send(record)
        except (OSError, RemoteError):
            # The job has ended, or nobody can be told: work goes on.
            logging.getLogger().removeHandler(self)
        finally:
            self._busy.sending = False

    def _send(self, record: logging.LogRecord) -> None:
        self._shared.read(self._marker)
        if self._sent < _MOST_MESSAGES:
            text = self.format(record)
        elif self._sent == _MOST_MESSAGES:
            text = f"more than {_MOST_MESSAGES} messages; the others are in the engine's own log"
        else:
            return
        name, self._sent = f"{LOGS}/{self._name}-{self._sent:06d}.json", self._sent + 1
        message = {"level": record.levelno, "host": socket.gethostname(), "process": os.getpid()}
        self._shared.write(name, json.dumps({**message, "text": text[:_MOST_LETTERS]}).encode())


def send(shared: Shared, marker: str) -> None:
    """From now on leave what this process logs in ``shared``, as long as the file ``marker`` is there."""
    root = logging.getLogger()
    for handler in [*root.handlers]:
        # Of a job before.
        if isinstance(handler, _Sender):
            root.removeHandler(handler)
    root.addHandler(_Sender(shared, marker))
    logging.getLogger(_OURS).setLevel(logging.INFO)


def tell(shared: Shared, told: set[str]) -> None:
    """Log what workers have left since; ``told`` are the files that were read, and grows.

    Raises:
        RemoteError: the store does not answer.
    """
    for name in sorted(set(shared.names(f"{LOGS}/")) - told):
        told.add(name)
        try:
            found = json.loads(shared.read(name))
            level, host, process, text = (found[key] for key in ("level", "host", "process", "text"))
            said = f"worker on {_printable(str(host))}, process {int(process)}: {_printable(str(text))}"
            level = int(level)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            # Of a store anyone with its credentials may write to.
            level, said = logging.WARNING, f"{name}: expected what a worker logged, found something else"
        _logger.log(level, "%s", said)


def _printable(text: str) -> str:
    """Without what a terminal would obey; lines stay lines."""
    return "\n".join(map(printable, text.splitlines()))
