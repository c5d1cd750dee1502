"""Schedule: what became of unattended runs, and what of it people have been told.

Beside the data's way; a leaf. One JSON file under the storage root. An incident lasts from the first run that failed to
the next that did not; each of its causes is told once to each channel, and its end once to each that was told of it.
What a channel does not take is owed to it, and told before all else when the next run ends, however that one does.
"""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

STATE_NAME = "schedule.json"
SCHEMA_VERSION = 1

#: Runs remembered, at most.
MOST_OUTCOMES = 60
#: Causes of incidents that one channel may be owed, at most.
MOST_OWED = 20
_LONGEST = 300
_BYTES = 65_536

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one unattended run ended.

    Attributes:
        task: what was asked for, as "Nightly 2026-11-20".
        started_at: ISO 8601, UTC.
        seconds: how long it took.
        exit_code: 0, or why not; 128 more than its number for a signal.
        stage: the task that failed or was at work, empty where none was.
        reason: the error in words, empty where there was none.
        log: its last lines.
        invocation: systemd's name of the run, empty where it did not start it.
    """

    task: str
    started_at: str
    seconds: float
    exit_code: int
    stage: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    invocation: str = ""

    def ended_at(self) -> datetime:
        """When it ended."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=self.seconds)

    def cause(self) -> str:
        """What tells one cause of an incident from another: not its words, which may hold figures that change."""
        return f"{self.stage or 'no stage'}, exit code {self.exit_code}"


def empty_state() -> dict:
    """The state before anything was remembered."""
    nothing = {"last_success": None, "since": None, "told": {}, "owed": {}, "outcomes": []}
    return {"schema_version": SCHEMA_VERSION, **nothing}


def read_state(path: Path) -> dict:
    """The state, or an empty one where there is none or it is damaged: an incident is rather told twice than never."""
    empty = empty_state()
    try:
        state = json.loads(path.read_bytes())
        if state["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {state['schema_version']!r}")
        told = {str(channel): [str(cause) for cause in causes] for channel, causes in state["told"].items()}
        # Built once, to see that they can be.
        owed = {channel: [_kept(one) for one in _owed(state, channel)] for channel in state["owed"]}
        return {
            **{name: state[name] for name in empty},
            "told": told,
            "owed": owed,
            "outcomes": list(state["outcomes"]),
        }
    except FileNotFoundError:
        return empty
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s: cannot be read (%r), a new one is begun", path, error)
        return empty


def due(state: Mapping, outcome: Outcome, channel: str) -> list[tuple[str, Outcome]]:
    """What the channel has to be told now that a run has ended so: each a "failure" or a "recovery", oldest first."""
    told = state["told"].get(channel, [])
    events = [("failure", owed) for owed in _owed(state, channel) if owed.cause() != outcome.cause()]
    if outcome.exit_code == 0:
        return [*events, ("recovery", outcome)] if told or events else []
    return events if outcome.cause() in told else [*events, ("failure", outcome)]


def settle(state: dict, outcome: Outcome, channel: str) -> None:
    """Remember that the channel has been told of the outcome."""
    owed = [kept for kept in _owed(state, channel) if kept.cause() != outcome.cause()]
    if outcome.exit_code == 0:
        state["told"].pop(channel, None)
    else:
        state["told"].setdefault(channel, []).append(outcome.cause())
    state["owed"][channel] = [_kept(one) for one in owed]


def owe(state: dict, outcome: Outcome, channel: str) -> None:
    """Remember that the channel did not take what it was to be told of the outcome; a recovery falls due by itself."""
    if outcome.exit_code:
        owed = [one for one in _owed(state, channel) if one.cause() != outcome.cause()]
        state["owed"][channel] = [_kept(one) for one in [*owed, outcome]][-MOST_OWED:]


def _owed(state: Mapping, channel: str) -> list[Outcome]:
    return [Outcome(**kept) for kept in state["owed"].get(channel, [])]


def _kept(outcome: Outcome) -> dict:
    """The outcome as it is remembered: short, and without its log."""
    kept = {name: value for name, value in asdict(outcome).items() if name != "log"}
    return kept | {name: kept[name][:_LONGEST] for name in ("task", "stage", "reason")}


def note(state: dict, outcome: Outcome) -> None:
    """Remember the outcome itself."""
    state["outcomes"] = [*state["outcomes"], _kept(outcome)][-MOST_OUTCOMES:]
    if outcome.exit_code == 0:
        state["last_success"], state["since"] = outcome.ended_at().isoformat(timespec="seconds"), None
    else:
        state["since"] = state["since"] or outcome.started_at


def reserve(path: Path) -> None:
    """Take room for the next state before a run that may fill the disk.

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The room of the present state is free once the next has replaced it: from the first on there are two.
    for place in (_spare(path), path):
        if not place.exists() or place.stat().st_size != _BYTES:
            _overwrite(place, _encoded(read_state(path)))


def write_state(path: Path, state: Mapping) -> None:
    """Replace the state by one rename, in the room that was reserved.

    Raises:
        OSError: the folder cannot be written, or has no room and none was reserved.
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
