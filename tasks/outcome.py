"""The outcome of the last scheduled run and the state of its notification: ``last_outcome.json``."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

SCHEMA_VERSION = 1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a scheduled run ended, as ``last_outcome.json`` records it. Times are ISO 8601 in UTC.

    Attributes:
        task: name of the task and its date.
        started_at: when the run started.
        seconds: wall-clock time.
        exit_code: of the run.
        stage: task that failed, or was running at the end.
        reason: the error message.
        log: last lines of the log.
        invocation: systemd's id of the run.
        last_success: when the last run that succeeded ended.
        failing_since: when the first failed run of the present, or just ended, incident started.
        notified: whether the webhook accepted it, or needs no message.
        mailed: the same for e-mail.
    """

    task: str
    started_at: str
    seconds: float
    exit_code: int
    stage: str = ""
    reason: str = ""
    log: Sequence[str] = ()
    invocation: str = ""
    last_success: str | None = None
    failing_since: str | None = None
    notified: bool = False
    mailed: bool = False

    @property
    def cause(self) -> tuple[str, int]:
        """Distinguishes failures. The reason does not count, because it may contain changing numbers."""
        return self.stage, self.exit_code

    def ended_at(self) -> datetime:
        """Time of the end."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=self.seconds)

    def after(self, previous: "Outcome | None") -> "Outcome":
        """The outcome with the state that follows from the previous one."""
        if self.exit_code:
            known = previous is not None and previous.exit_code != 0
            return replace(
                self,
                last_success=previous and previous.last_success,
                failing_since=previous.failing_since if known else self.started_at,
                notified=known and previous.notified and previous.cause == self.cause,
                mailed=known and previous.mailed and previous.cause == self.cause,
            )
        is_recovery = previous is not None and (previous.exit_code != 0 or not previous.notified)
        return replace(
            self,
            last_success=self.ended_at().isoformat(timespec="seconds"),
            failing_since=previous.failing_since if is_recovery else None,
            notified=not is_recovery,
            mailed=not is_recovery or (previous.exit_code == 0 and previous.mailed),
        )


def read_outcome(path: Path) -> Outcome | None:
    """The recorded outcome. None if there is none, or the file is damaged."""
    try:
        content = json.loads(path.read_bytes())
        if (version := content.pop("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}")
        outcome = Outcome(**content)
        outcome.ended_at()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning("%s cannot be read (%r). The outcome of this run replaces it.", path, error)
        return None
    return outcome


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Replace the file atomically.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    content = {"schema_version": SCHEMA_VERSION, **asdict(outcome)}
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8", errors="replace")
    os.replace(temporary, path)
