"""The outcome of the last scheduled run and the state of its notification, in ``last_outcome.json``."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

SCHEMA_VERSION = 2
#: Ways to send a message.
CHANNELS = ("webhook", "mail")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a scheduled run ended. Times are ISO 8601 in UTC."""

    #: Name and date.
    task: str
    started_at: str
    seconds: float
    exit_code: int
    #: The task that failed, or was running at the end.
    stage: str = ""
    reason: str = ""
    log: Sequence[str] = ()
    #: systemd's id of the run.
    invocation: str = ""
    #: When the last run that succeeded ended.
    last_success: str | None = None
    #: When the first failed run of the present, or just ended, incident started.
    failing_since: str | None = None
    #: Channels that accepted the message, or need none.
    notified: tuple[str, ...] = ()

    def ended_at(self) -> datetime:
        """Time of the end."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=self.seconds)

    def after(self, previous: "Outcome | None") -> "Outcome":
        """The outcome with the state that follows from the previous one."""
        was_failing = previous is not None and previous.exit_code != 0
        if self.exit_code:
            # The reason does not distinguish failures, because it may contain changing numbers.
            is_resolved = was_failing and (previous.stage, previous.exit_code) == (self.stage, self.exit_code)
            return replace(
                self,
                last_success=previous and previous.last_success,
                failing_since=previous.failing_since if was_failing else self.started_at,
                notified=previous.notified if is_resolved else (),
            )
        notified = () if was_failing else previous.notified if previous else CHANNELS
        return replace(
            self,
            last_success=self.ended_at().isoformat(timespec="seconds"),
            # The message of the recovery may be pending.
            failing_since=previous.failing_since if previous and len(notified) < len(CHANNELS) else None,
            notified=notified,
        )


def read_outcome(path: Path) -> Outcome | None:
    """The recorded outcome. None if there is none, or the file is damaged."""
    try:
        content = json.loads(path.read_bytes())
        if (version := content.pop("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}")
        outcome = Outcome(**content | {"notified": tuple(content["notified"])})
        outcome.ended_at()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s cannot be read (%r). This run replaces the file.", path, error)
        return None
    return outcome


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Replace the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    content = {"schema_version": SCHEMA_VERSION, **asdict(outcome)}
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8", errors="replace")
    os.replace(temporary, path)
