"""Company: the processes that train together meet when they start, and each hears of it when another is gone.

From before any data is prepared until the last stage is done, so that none prepares or waits for what the others will
not train on. The training itself has a meeting of its own (pipeline/training/meeting.py), which ends it at once; here
there is patience, for who trains says first what has happened, and who is done may go.
"""

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.config.membership import Membership
from pipeline.errors import WorkerDiedError
from tasks.process import interrupt

if TYPE_CHECKING:
    from pipeline.training.meeting import Meeting

# The coordinator's port and the next are the training's.
_PORTS_OF_TRAINING = 2
_PATIENCE_SECONDS = 10.0

_meetings: list["Meeting"] = []
_is_over = threading.Event()


def meet(membership: Membership, *, settings: str, timeout_seconds: float) -> None:
    """Wait for all of several, once in a process; ``settings``, a digest, have to be the same everywhere.

    Raises:
        SettingsError: the coordinator's address cannot be used, or a process was started with other settings.
        WorkerDiedError: not all have come within the time limit; it names those that are missing.
    """
    # Every start imports this module, few have company.
    from pipeline.training.meeting import join

    if not _meetings:
        where = replace(membership, port=membership.port + _PORTS_OF_TRAINING)
        _meetings.append(join(where, run=settings, timeout_seconds=timeout_seconds, on_gone=_stop))


def part() -> None:
    """All is done: whoever goes from now on is missed by nobody."""
    _is_over.set()


def _stop(message: str) -> None:
    if not _is_over.wait(_PATIENCE_SECONDS):
        interrupt.stop(WorkerDiedError(message))
