"""Events: what Luigi's tasks do, told to the process that supervises this one, if there is one (see unattended.py).

Through a pipe, not through the log: that is for people, and not through a file: the disk may be full.
"""

import json
import os
from collections.abc import Callable

import luigi

DESCRIPTOR_VARIABLE = "TENSORCRAFT_EVENTS_FD"

# A line of at most this many bytes is written whole, also where several workers write at once.
_LONGEST_REASON = 2_000


def listen() -> None:
    """Tell of each task that begins, ends or fails; in workers that Luigi forks as well."""
    descriptor = os.environ.get(DESCRIPTOR_VARIABLE, "")
    if descriptor.isdigit():
        for event in (luigi.Event.START, luigi.Event.SUCCESS, luigi.Event.FAILURE):
            luigi.Task.event_handler(event)(_teller(int(descriptor), event))


def _teller(descriptor: int, event: str) -> Callable[..., None]:
    def tell(task: luigi.Task, error: BaseException | None = None) -> None:
        reason = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        told = {"event": event, "task": task.task_family, "reason": reason}
        os.write(descriptor, json.dumps(told).encode() + b"\n")

    return tell
