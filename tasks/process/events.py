"""Events: what Luigi's tasks do, reported to those who have to know.

A process that supervises this one, if there is one (see tasks/scheduled.py), reads them in a file in memory: the
log is for people, and the disk may be full. Luigi's own worker learns of a failure by a signal.
"""

import json
import os
import signal
from collections.abc import Callable

import luigi
import luigi.worker

DESCRIPTOR_VARIABLE = "TENSORCRAFT_EVENTS_FD"

# A line of at most this many bytes is written at once, also where several workers write at once.
_LONGEST_REASON = 2_000


def listen() -> None:
    """Report each task that begins, ends or fails; in workers that Luigi forks as well."""
    if luigi.worker.worker().keep_alive:
        for event in (luigi.Event.FAILURE, luigi.Event.BROKEN_TASK):
            luigi.Task.event_handler(event)(_leaver(os.getpid()))
    descriptor = os.environ.get(DESCRIPTOR_VARIABLE, "")
    if descriptor.isdigit():
        for event in (luigi.Event.START, luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(_reporter(int(descriptor), event))


def _leaver(worker: int) -> Callable[..., None]:
    """With ``keep_alive`` Luigi's worker would wait to try again; this signal is its own way to be sent home."""

    def leave(*_: object) -> None:
        os.kill(worker, signal.SIGUSR1)

    return leave


def _reporter(descriptor: int, event: str) -> Callable[..., None]:
    def report(task: luigi.Task, error: BaseException | None = None) -> None:
        reason = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        entry = {"event": event, "task": task.task_family, "reason": reason}
        os.write(descriptor, json.dumps(entry).encode() + b"\n")

    return report
