"""State file: where incidents are remembered, one JSON file under the storage root that a full disk can still take.

Beside the data's way; nothing of Luigi. The file always has the same length, and a spare of that length lies beside it.
"""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from tasks.operations.incidents import checked_state, empty_state

STATE_NAME = "schedule.json"

_BYTES = 65_536

_logger = logging.getLogger(__name__)


def state_name(experiment: str) -> str:
    """The file's name: an experiment has one of its own, for that one works again ends no incident of another."""
    return f"schedule-{experiment}.json" if experiment else STATE_NAME


def read_state(path: Path) -> dict:
    """The state, or an empty one where there is none or it is damaged: an incident is rather reported twice than never.

    See incidents.py for what is in it.
    """
    try:
        return checked_state(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return empty_state()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s: cannot be read (%r), a new one is begun", path, error)
        return empty_state()


def reserve(path: Path) -> None:
    """Take disk space for the next state before a run that may fill the disk.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The space of the present state is free once the next has replaced it: from the first on there are two.
    for place in (_spare(path), path):
        if not place.exists() or place.stat().st_size != _BYTES:
            _overwrite(place, _encoded(read_state(path)))


def write_state(path: Path, state: Mapping) -> None:
    """Replace the state by one rename, in the space that was reserved.

    Raises:
        OSError: the folder cannot be written, or the disk is full and nothing was reserved.
    """
    reserve(path)
    _overwrite(_spare(path), _encoded(state))
    os.replace(_spare(path), path)
    with contextlib.suppress(OSError):
        reserve(path)


def _encoded(state: Mapping) -> bytes:
    """As JSON, without its oldest outcomes if it would not fit."""
    content = json.dumps(state, indent=1, ensure_ascii=False).encode(errors="replace")
    if len(content) > _BYTES and state["outcomes"]:
        return _encoded({**state, "outcomes": state["outcomes"][1:]})
    return content


def _spare(path: Path) -> Path:
    return path.with_name(f".{path.name}.spare")


def _overwrite(path: Path, content: bytes) -> None:
    """Always the same number of bytes, in place: a full disk has no others. JSON allows for spaces at its end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with open(descriptor, "r+b") as file:
        file.write(content.ljust(_BYTES))
        file.flush()
        os.fsync(descriptor)
