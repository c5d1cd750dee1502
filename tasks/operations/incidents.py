"""Incidents: how scheduled runs ended, what of it is pending for each channel, and when all works again.

Beside the data's way; plain data in and out, and nothing of Luigi. An incident lasts from the first run that failed to
the next that succeeds; each of its causes is reported once to each channel, and its end once to each that knows of it.
What a channel did not accept is pending for it, and goes out before all else when the next run ends, however that one
does. The state's JSON names what was reported "told" and what is pending "owed", as it did from the first version on.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

SCHEMA_VERSION = 1

#: Runs remembered, at most.
MOST_OUTCOMES = 60
#: Causes of incidents that may be pending for one channel, at most.
MOST_PENDING = 20
_LONGEST = 300


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one scheduled run ended.

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
        """What distinguishes one cause of an incident from another: not its words, which may hold changing figures."""
        return f"{self.stage or 'no stage'}, exit code {self.exit_code}"


def empty_state() -> dict:
    """The state before anything was remembered."""
    nothing = {"last_success": None, "since": None, "previous_since": None, "told": {}, "owed": {}, "outcomes": []}
    return {"schema_version": SCHEMA_VERSION, **nothing}


def checked_state(state: Mapping) -> dict:
    """A state as it was read.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none, or one of another version.
    """
    if state["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version {state['schema_version']!r}")
    # A state of an earlier version does not have it.
    state = {"previous_since": None, **state}
    if not all(isinstance(state[name], str | None) for name in ("last_success", "since", "previous_since")):
        raise TypeError("a moment that is no text")
    return {
        **{name: state[name] for name in empty_state()},
        "told": {str(channel): [str(cause) for cause in causes] for channel, causes in state["told"].items()},
        # Built once, to see that they can be.
        "owed": {channel: [_kept(one) for one in _pending(state, channel)] for channel in state["owed"]},
        "outcomes": list(state["outcomes"]),
    }


def due(state: Mapping, outcome: Outcome, channel: str) -> list[tuple[str, Outcome]]:
    """What the channel is due now that a run has ended so: each a "failure" or a "recovery", oldest first."""
    reported = state["told"].get(channel, [])
    events = [("failure", one) for one in _pending(state, channel) if one.cause() != outcome.cause()]
    if outcome.exit_code == 0:
        return [*events, ("recovery", outcome)] if reported or events else []
    return events if outcome.cause() in reported else [*events, ("failure", outcome)]


def mark_reported(state: dict, outcome: Outcome, channel: str) -> None:
    """Remember that the channel knows of the outcome."""
    pending = [one for one in _pending(state, channel) if one.cause() != outcome.cause()]
    if outcome.exit_code == 0:
        state["told"].pop(channel, None)
    else:
        state["told"].setdefault(channel, []).append(outcome.cause())
    state["owed"][channel] = [_kept(one) for one in pending]


def mark_pending(state: dict, outcome: Outcome, channel: str) -> None:
    """Remember that the channel did not accept the report of the outcome; a recovery falls due by itself."""
    if outcome.exit_code:
        pending = [one for one in _pending(state, channel) if one.cause() != outcome.cause()]
        state["owed"][channel] = [_kept(one) for one in [*pending, outcome]][-MOST_PENDING:]


def failing_since(state: Mapping, outcome: Outcome) -> str:
    """When the incident of an outcome began, which may be told later than it was; ISO 8601, UTC."""
    under_way, ended = state["since"], state["previous_since"]
    if outcome.exit_code == 0:
        return under_way or ended or outcome.started_at
    if under_way and under_way <= outcome.started_at:
        return under_way
    # Not of the one that ended, but the first of another.
    if ended and ended <= outcome.started_at < state["last_success"]:
        return ended
    return outcome.started_at


def remember(state: dict, outcome: Outcome) -> None:
    """Remember the outcome itself."""
    state["outcomes"] = [*state["outcomes"], _kept(outcome)][-MOST_OUTCOMES:]
    if outcome.exit_code == 0:
        state["previous_since"] = state["since"] or state["previous_since"]
        state["last_success"], state["since"] = outcome.ended_at().isoformat(timespec="seconds"), None
    else:
        state["since"] = state["since"] or outcome.started_at


def _pending(state: Mapping, channel: str) -> list[Outcome]:
    return [Outcome(**kept) for kept in state["owed"].get(channel, [])]


def _kept(outcome: Outcome) -> dict:
    """The outcome as it is remembered: short, and without its log."""
    kept = {name: value for name, value in asdict(outcome).items() if name != "log"}
    return kept | {name: kept[name][:_LONGEST] for name in ("task", "stage", "reason")}
