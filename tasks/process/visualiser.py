"""Visualiser: how far a task is, for whoever watches it in Luigi's visualiser."""

import luigi
from luigi.rpc import RPCError


class Visualiser:
    """How far a task is, reported to Luigi's scheduler; where none listens, the work goes on."""

    def __init__(self, task: luigi.Task) -> None:
        self._task = task
        # Luigi gives a task these while its worker runs it.
        self._is_there = bool(task.set_status_message)
        self._percentage: int | None = None

    def __call__(self, what: str, done: int, total: int, unit: str) -> None:
        """Report each whole percent: it is a request to another process."""
        percentage = 100 * done // total
        if not self._is_there or percentage == self._percentage:
            return
        self._percentage = percentage
        try:
            self._task.set_status_message(f"{what}: {done:,} of {total:,} {unit}")
            self._task.set_progress_percentage(percentage)
        except RPCError:
            # Each request would wait for the scheduler again.
            self._is_there = False
