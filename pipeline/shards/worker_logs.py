"""Worker logs: what workers of a cluster log is told by the process that submitted the job (the shards' aid).

An engine keeps its workers' logs on their machines, each engine in a way of its own. Warnings and worse, whoever gives
them, and all that this project says are left beside the notes of blocks too, a line each, and told where those are
counted. Work never waits for it, and a message that cannot be left is lost.
"""

import json
import logging
import os
import queue
import socket
import threading
import time
import uuid
from logging.handlers import QueueHandler

from pipeline.artefacts.fingerprint import printable
from pipeline.errors import RemoteError
from pipeline.shards.shared import Shared

#: Beside the notes, a file for each message: objects cannot be appended to.
LOGS = "logs"
# Of one process: an engine's own may warn without end. The last of them are for errors.
_MOST_MESSAGES, _MOST_WARNINGS = 200, 150
_MOST_LETTERS, _MOST_BYTES = 2_000, 20_000
# All that is told at once: where there are many workers there are many messages.
_TELLING_SECONDS = 5.0
_CLOSING_SECONDS = 2.0
_OURS = "pipeline"

_logger = logging.getLogger(__name__)


class _Sender(QueueHandler):
    """Hands messages to a thread, which leaves them as long as the job's first file is there.

    A worker may outlive its job.
    """

    def __init__(self, shared: Shared, marker: str) -> None:
        super().__init__(queue.SimpleQueue())
        self._shared, self._marker = shared, marker
        self._name, self._sent = uuid.uuid4().hex, 0
        self._thread = threading.Thread(target=self._leave_all, daemon=True)
        self._thread.start()

    def filter(self, record: logging.LogRecord) -> bool:
        """Ours, and what others warn of."""
        ours = record.name == _OURS or record.name.startswith(f"{_OURS}.")
        return ours or record.levelno >= logging.WARNING

    def prepare(self, record: logging.LogRecord) -> tuple[int, str]:
        """The message as one line: of a traceback its end, which says what was raised."""
        lines = [line for line in self.format(record).splitlines() if line.strip()] or [""]
        text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
        return record.levelno, text[:_MOST_LETTERS]

    def close(self) -> None:
        """At the end of the process, with a moment for what waits."""
        self.queue.put(None)
        self._thread.join(_CLOSING_SECONDS)
        super().close()

    def _leave_all(self) -> None:
        while waiting := self.queue.get():
            try:
                self._leave(*waiting)
            except FileNotFoundError:
                break
            except (OSError, RemoteError):
                # This one is lost.
                continue
        logging.getLogger().removeHandler(self)

    def _leave(self, level: int, text: str) -> None:
        most = _MOST_MESSAGES if level >= logging.ERROR else _MOST_WARNINGS
        if self._sent > most:
            return
        if self._sent == most:
            text = "more messages, which are in the engine's own log"
        self._shared.read(self._marker)
        about = {"level": level, "host": socket.gethostname(), "process": os.getpid(), "text": text}
        name, self._sent = f"{LOGS}/{self._name}-{self._sent:06d}.json", self._sent + 1
        self._shared.write(name, json.dumps(about).encode())


def send(shared: Shared, marker: str) -> None:
    """From now on leave what this process logs in ``shared``, as long as the file ``marker`` is there."""
    logging.getLogger().addHandler(_Sender(shared, marker))
    logging.getLogger(_OURS).setLevel(logging.INFO)


def tell(shared: Shared, told: set[str]) -> None:
    """Log what workers have left since, some seconds long; ``told`` are the files that were read, and grows.

    A worker's error is a warning here: the engine may try its work again.

    Raises:
        RemoteError: the store does not answer.
    """
    ends = time.monotonic() + _TELLING_SECONDS
    for name in sorted(set(shared.names(f"{LOGS}/")) - told):
        if time.monotonic() > ends:
            break
        try:
            found = json.loads(shared.read(name, at_most=_MOST_BYTES))
            level, host, process, text = (found[key] for key in ("level", "host", "process", "text"))
            said = f"worker on {printable(str(host))}, process {int(process)}: {printable(str(text))}"
            level = min(int(level), logging.WARNING)
        except (OSError, ValueError, ArithmeticError, LookupError, TypeError, RecursionError):
            # Of a store anyone with its credentials may write to.
            level, said = logging.WARNING, f"{printable(name)}: expected what a worker logged, found something else"
        told.add(name)
        _logger.log(level, "%s", said[: 2 * _MOST_LETTERS])
