"""``python -m pipeline.training``: one training in a process of its own, for ``process.py``.

Reads the job as a line of JSON from standard input, and ends when that ends. Writes lines of JSON to standard output:
what is logged, how far it is, and last the error that it ended with, if it is one of ours.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from pipeline import chatter, progress
from pipeline.config.membership import Membership
from pipeline.config.training import TrainSettings
from pipeline.errors import PipelineError, WorkerDiedError

# What libraries print must not come between the lines of ours.
_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
_LOCK = threading.Lock()
# This process has an error of its own to tell.
_FAILED_HERE = threading.Event()
_OWN_FAILURE_SECONDS = 0.5
# For the meeting to say that a process is gone, and which.
_HEARING_SECONDS = 3.0


def _say(kind: str, values: object) -> None:
    with _LOCK:
        _OUT.write(json.dumps([kind, values]) + "\n")


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say("log", [record.name, record.levelno, self.format(record)])


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> int:
    """Train."""
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    logging.getLogger().addHandler(_Teller())
    for name in ("pipeline", "tasks"):
        logging.getLogger(name).setLevel(logging.INFO)
    progress.listen(lambda *values: _say("progress", values))
    # Imported here: which backend Keras has was decided by who started this process.
    with chatter.held_back() as said:
        from pipeline.runs.initial import InitialWeights
        from pipeline.training.meeting import Meeting, join
        from pipeline.training.train import train

    os.write(2, b"".join(said))
    how = job["how"]
    initial = job["initial"]
    if initial:
        paths = {name: initial[name] and Path(initial[name]) for name in ("file", "run_folder")}
        initial = InitialWeights(**{**initial, **paths})
    settings, meeting = TrainSettings(**job["settings"]), Meeting()
    try:
        meeting = join(
            Membership(**job["membership"]),
            run=how["fingerprint"],
            timeout_seconds=settings.join_timeout_seconds,
            on_gone=_end_without_the_others,
        )
        if meeting.membership.processes > 1:
            from pipeline.hardware import jax

            jax.join(meeting.membership)
        train(
            Path(job["records_folder"]),
            settings,
            Path(job["folder"]),
            initial=initial,
            drawn=Path(job["drawn"]),
            meeting=meeting,
            **{**how, "checkpoints": Path(how["checkpoints"])},
        )
        meeting.leave()
    except PipelineError as error:
        _FAILED_HERE.set()
        _say_error(error)
        return error.exit_code
    except Exception:
        if meeting.membership.processes > 1:
            # The step fails where a process is gone, often before that is heard of.
            time.sleep(_HEARING_SECONDS)
        raise
    return 0


def _say_error(error: PipelineError) -> None:
    _say("error", [type(error).__name__, {"message": str(error), "mismatch": getattr(error, "mismatch", None)}])


def _end_without_the_others(message: str) -> None:
    error = WorkerDiedError(message)
    # Where all fail of one cause each says that, and what is said last counts: that others have gone of it says less.
    if _FAILED_HERE.is_set():
        return
    # At once: JAX ends the process where its service is gone.
    _say_error(error)
    if not _FAILED_HERE.wait(_OWN_FAILURE_SECONDS):
        os._exit(error.exit_code)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = main()
    except KeyboardInterrupt:
        # Who interrupted says so.
        code = 128 + signal.SIGINT
    _OUT.flush()
    # Not by the interpreter's way out: a thread waits for the parent, and the device is given back by the system.
    sys.stderr.flush()
    os._exit(code)
