"""What ends a stage from outside: Ctrl-C, SIGTERM, its time limit.

Each is a signal that raises KeyboardInterrupt in the stage, which then clears away what is unfinished. Beam wraps even
that into an error of its own, so the signals are remembered: what leaves the stage says what happened. Code that hangs
outside Python hears no signal: past its time limit a watchdog shows where every thread stands and ends the process.
"""

import contextlib
import faulthandler
import signal
import threading
from collections.abc import Iterator

from pipeline.errors import PipelineError, TimeLimitError

# For the way out of a running step and the clearing away.
GRACE_SECONDS = 30

_received: list[int] = []


def listen() -> None:
    """Let a scheduler's way to stop a job be as orderly as Ctrl-C; where SIGINT is ignored it stays so."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)


@contextlib.contextmanager
def time_limit(stage: str, seconds: int) -> Iterator[None]:
    """Let a stage run for at most ``seconds``, 0 for as long as it takes, and leave it as it was interrupted.

    Raises:
        KeyboardInterrupt: a signal said so, whatever a library made of it.
        TimeLimitError: the time is over; names the setting.
    """
    _received.clear()
    if seconds:
        signal.alarm(seconds)
        faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True)
    try:
        yield
    except PipelineError:
        raise
    except (Exception, KeyboardInterrupt):
        if signal.SIGALRM in _received:
            raise TimeLimitError(
                f"{stage}: not done after {seconds} s. Finished stages and epochs are kept, run again to go on, or "
                f"raise [{stage}] time_limit_seconds (0: no limit)."
            ) from None
        if _received:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()


def _interrupt(signum: int, _: object) -> None:
    _received.append(signum)
    raise KeyboardInterrupt
