"""Central: asks whether Luigi's central scheduler answers, before anything is asked of it.

Luigi would ask three times, wait half a minute each time and end in a traceback. That patience is right once a run is
at work (a scheduler may be started anew), not where there is none.
"""

from collections.abc import Sequence

import luigi.interface
import requests

from pipeline.errors import SchedulerUnavailableError, SettingsError
from tasks.process import command_line
from tasks.process.logs import SCHEDULER_REMEDY

# For each of a name's addresses; most have two.
_TIMEOUT_SECONDS = 4


def require(argv: Sequence[str]) -> None:
    """Go on only where the scheduler that this command line uses answers; one inside the process always does.

    Raises:
        SchedulerUnavailableError: it does not answer, or something else does.
        SettingsError: its port is none, or the command line has what nobody knows.
    """
    with command_line.in_force(argv):
        try:
            settings = luigi.interface.core()
        except ValueError as error:
            raise SettingsError(f"[core]: {error}. SCHEDULER_PORT is expected to be a number, as 8082.") from error
    if settings.local_scheduler:
        return
    url = settings.scheduler_url or f"http://{settings.scheduler_host}:{settings.scheduler_port}"
    if url.startswith("http+unix:"):
        return
    try:
        answer = requests.get(f"{url.rstrip('/')}/api/is_paused", params={"data": "{}"}, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        answer.json()["response"]
    except (requests.RequestException, ValueError, LookupError, TypeError) as error:
        raise SchedulerUnavailableError(
            f"{url}: expected Luigi's central scheduler, it does not answer ({type(error).__name__}). "
            f"{SCHEDULER_REMEDY}"
        ) from error
