"""On failure: reports a scheduled run that could not be reported, because its supervisor was killed as well.

For systemd's OnFailure=, which says in MONITOR_* what became of which run (see systemd.exec's manual). A run that was
reported is not reported again.
"""

import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from tasks import program
from tasks.operations.incidents import Outcome
from tasks.operations.notify import notify_and_remember
from tasks.operations.state_file import read_state
from tasks.operations.supervise import settings, state_path
from tasks.process import console


def main(argv: list[str]) -> int:
    """Report the run that the environment describes, unless it was reported."""
    console.configure()
    with settings(argv):
        outcome = outcome_of(os.environ)
        path = state_path()
        outcomes = read_state(path)["outcomes"] if path else []
        if outcome.invocation in {remembered.get("invocation") for remembered in outcomes}:
            print(f"{outcome.task}: was reported by its supervisor", file=sys.stderr)
        else:
            notify_and_remember(path, outcome)
    return 0


def outcome_of(environment: Mapping[str, str]) -> Outcome:
    """What systemd says of the run."""
    code, status = environment.get("MONITOR_EXIT_CODE", ""), environment.get("MONITOR_EXIT_STATUS", "")
    return Outcome(
        task=environment.get("MONITOR_UNIT", "a run"),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=0,
        exit_code=int(status) if status.isdigit() else 128 + _signal_number(status),
        reason=f"systemd: {environment.get('MONITOR_SERVICE_RESULT', 'failure')} ({code} {status})",
        invocation=environment.get("MONITOR_INVOCATION_ID", "unknown"),
    )


def _signal_number(name: str) -> int:
    return getattr(signal, f"SIG{name}", 0)


if __name__ == "__main__":
    program.run(main)
