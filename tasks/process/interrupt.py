"""Ctrl-C, SIGTERM and time limits.

Each is a signal that raises KeyboardInterrupt in the stage, which then removes unfinished work and ends its child
process (pipeline/stage_process.py). tasks/__init__.py imports this module first, so it must load quickly.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

from pipeline.errors import PipelineError, TimeLimitError

#: Message of an interrupted process.
MESSAGE = "Interrupted. Finished stages are kept. Run the same command again to resume."

# Signals since the stage began. Libraries wrap the KeyboardInterrupt that a signal raises.
_received: list[int] = []
_reasons: list[PipelineError] = []


def leave_while_importing() -> None:
    """Let Ctrl-C end the process with one line until ``listen``, if one of our modules is the program.

    While Python searches the module that ``-m`` names, it imports this package, and ``sys.argv`` starts with ``-m``.
    """
    if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def listen() -> None:
    """Treat SIGTERM and SIGALRM like Ctrl-C. An ignored SIGINT stays ignored."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _leave):
            signal.signal(signal.SIGINT, _interrupt)


def stop(reason: PipelineError) -> None:
    """End the stage that is at work with an error for the user. Any thread may call it."""
    _reasons.append(reason)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def time_limit(stage: str, seconds: int) -> Iterator[None]:
    """Run a stage for at most ``seconds``, or without limit if 0. A limit around it goes on afterwards.

    A signal raises TimeLimitError, the reason given to ``stop``, or KeyboardInterrupt.
    """
    _received.clear()
    begun = time.monotonic()
    left = signal.alarm(seconds)
    try:
        yield
    except PipelineError:
        raise
    except (Exception, KeyboardInterrupt):
        if _reasons:
            raise _reasons[-1] from None
        if signal.SIGALRM in _received:
            raise TimeLimitError(
                f"{stage}: not finished after {seconds} s. Finished stages and epochs are kept. Run the same command "
                f"again to resume, or increase [{stage}] time_limit_seconds (0 means no limit)."
            ) from None
        if not _received:
            raise
        if multiprocessing.parent_process() is not None:
            # Luigi forked this worker. The first process reports the signal.
            os._exit(128 + signal.SIGINT)
        raise KeyboardInterrupt from None
    finally:
        signal.alarm(max(1, left - int(time.monotonic() - begun)) if left else 0)
        _received.clear()


def _interrupt(signum: int, _: object) -> None:
    _received.append(signum)
    raise KeyboardInterrupt


def _leave(signum: int, _: object) -> None:
    # The signal may arrive in the middle of a print.
    os.write(2, f"\n{MESSAGE}\n".encode())
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
