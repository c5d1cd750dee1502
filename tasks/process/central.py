"""Check that Luigi's central scheduler answers before a run starts. Luigi itself would wait minutes for it."""

from collections.abc import Sequence

import luigi.interface
import requests

from pipeline.errors import SchedulerUnavailableError, SettingsError
from tasks.process import command_line
from tasks.process.logs import SCHEDULER_REMEDY

# Per address of the name.
_TIMEOUT_SECONDS = 4


def require(argv: Sequence[str]) -> None:
    """Check the scheduler of a command line. A local one is inside the process.

    Raises:
        SchedulerUnavailableError: it does not answer, or another program does.
        SettingsError: the port is no number, or the command line is wrong.
    """
    with command_line.in_force(argv):
        try:
            settings = luigi.interface.core()
        except ValueError as error:
            raise SettingsError(f"[core]: {error}. SCHEDULER_PORT is expected to be a number, as 8082.") from error
    url = settings.scheduler_url or f"http://{settings.scheduler_host}:{settings.scheduler_port}"
    if settings.local_scheduler or url.startswith("http+unix:"):
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
