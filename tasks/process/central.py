"""Central: asks whether Luigi's central scheduler answers, before anything is asked of it.

Luigi would ask three times, wait half a minute each time and end in a traceback. That patience is right once a run is
at work (a scheduler may be started anew), not where there is none.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence

import luigi.interface
import requests
from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import SchedulerUnavailableError, SettingsError
from tasks.process.console import SCHEDULER_REMEDY

# For each of a name's addresses; most have two.
_TIMEOUT_SECONDS = 4


def require(argv: Sequence[str]) -> None:
    """Go on only where the scheduler that this command line uses answers; one inside the process always does.

    Raises:
        SchedulerUnavailableError: it does not answer, or something else does.
        SettingsError: its port is none, or the command line has what nobody knows.
    """
    with _command_line(argv):
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


@contextlib.contextmanager
def _command_line(argv: Sequence[str]) -> Iterator[None]:
    """Under the overrides of a command line; Luigi's own parser would show the usage of all there are."""
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        try:
            with contextlib.redirect_stderr(said):
                stack.enter_context(CmdlineParser.global_instance(list(argv)))
        except SystemExit as end:
            if end.code != 2:
                raise
            wrong = said.getvalue().strip().rpartition("error: ")[2]
            raise SettingsError(
                f"command line: {wrong}. python -m tasks Report --help-all lists what there is."
            ) from None
        yield
