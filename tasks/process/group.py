"""The presence of this process among those that train together, from its start to its last stage."""

import atexit
from pathlib import Path

from pipeline.config.membership import Membership
from pipeline.training.presence import Presence
from tasks.process import interrupt

_presence: list[Presence] = []


def meet(root: Path, member: Membership, *, settings: str, timeout_seconds: float) -> Presence:
    """Announce this process under the storage root, once. Process 0 waits for all others.

    Raises:
        SettingsError: a process was started with other settings.
        WorkerDiedError: processes are missing. The message names them.
    """
    if not _presence:
        presence = Presence(root, member, settings=settings, on_gone=interrupt.stop)
        _presence.append(presence)
        atexit.register(presence.leave, is_done=False)
        if member.is_chief:
            presence.wait_for_all(timeout_seconds)
    return _presence[0]


def part() -> None:
    """Tell the other processes that all work is done."""
    for presence in _presence:
        presence.leave(is_done=True)
