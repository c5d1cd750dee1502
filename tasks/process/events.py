"""Report what Luigi's tasks do to a supervising process, see tasks/scheduled.py, and end a worker after a failure."""

import json
import os
import signal
from functools import partial

import luigi
import luigi.worker

#: The descriptor of a file in memory, because the disk may be full.
DESCRIPTOR_VARIABLE = "TENSORCRAFT_EVENTS_FD"
# A line of at most this many bytes is written at once, even if several workers write.
_LONGEST_REASON = 2_000


def listen() -> None:
    """Report each task that begins, ends or fails, also in workers that Luigi forks."""
    if luigi.worker.worker().keep_alive:
        worker = os.getpid()
        for event in (luigi.Event.FAILURE, luigi.Event.BROKEN_TASK):
            # With keep_alive Luigi's worker would wait to try again. At this signal it leaves.
            luigi.Task.event_handler(event)(lambda *_: os.kill(worker, signal.SIGUSR1))
    descriptor = os.environ.get(DESCRIPTOR_VARIABLE, "")
    if descriptor.isdigit():
        for event in (luigi.Event.START, luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(partial(_report, int(descriptor), event))


def _report(descriptor: int, event: str, task: luigi.Task, error: BaseException | None = None) -> None:
    reason = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
    entry = {"event": event, "task": task.task_family, "reason": reason}
    os.write(descriptor, json.dumps(entry).encode() + b"\n")
