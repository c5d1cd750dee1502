"""What ends a stage from outside: Ctrl-C, SIGTERM, its time limit.

Each is a signal that raises KeyboardInterrupt in the stage, which then clears away what is unfinished. Beam wraps even
that into an error of its own, so the signals are remembered: what leaves the stage says what happened. Code that hangs
outside Python, or ignores the exception, is not ended by it: past its time limit a watchdog shows where every thread
stands and ends the process. Python itself ignores an exception in a finaliser or a callback of the garbage collector,
where a signal may well come: the signal is then sent again. And TensorFlow now and then ends by SIGSEGV where the
exception comes in the middle of one of its calls: while a stage tells of its progress, the signal waits for the next
time it does.

Imported before all else (see tasks/__init__.py): it must stay light.
"""

import atexit
import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from pipeline import progress
from pipeline.errors import PipelineError, TimeLimitError

#: What an interrupted process says, whenever it was.
MESSAGE = "Interrupted. Finished stages are kept; run again to resume."

# For the way out of a running step and the clearing away.
GRACE_SECONDS = 30

# How long a signal waits for a step to end, and how long ago the last one may be for it to wait at all.
_PATIENCE_SECONDS = 1.5

_received: list[int] = []
_waiting: list[int] = []
_told: list[float] = []
_hooks_before: list[Callable] = []
_reasons: list[PipelineError] = []

_logger = logging.getLogger(__name__)


def leave_while_importing() -> None:
    """Let Ctrl-C end the process by one line until ``listen``: nothing is begun yet that would have to be cleared away.

    Only where one of our own modules is the program: another that imports them has its own way to end. While Python
    looks for the module that ``-m`` names it says so, and imports this package.
    """
    if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def listen() -> None:
    """Let a scheduler's way to stop a job be as orderly as Ctrl-C; where SIGINT is ignored it stays so."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)
        if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _leave):
            signal.signal(signal.SIGINT, _interrupt)
        if sys.unraisablehook is not _again_where_ignored:
            _hooks_before.append(sys.unraisablehook)
            sys.unraisablehook = _again_where_ignored


def stop(reason: PipelineError) -> None:
    """End the stage that is at work as a signal would, with an error for the user; from any thread."""
    _reasons.append(reason)
    os.kill(os.getpid(), signal.SIGTERM)


def end() -> None:
    """End an interrupted process, as if nobody had listened: a shell sees from it that its script was interrupted too.

    What has to be cleared away is, and what was to be done at the end is done. Taking the interpreter apart is left
    out: TensorFlow's threads may still run in the middle of a step, and now and then brought it down by SIGSEGV.
    """
    # Private, and the same in all versions of Python: what it does first when it ends.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Who reads may have gone.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    # The first process of a container is not ended by it.
    os._exit(128 + signal.SIGINT)


@contextlib.contextmanager
def time_limit(stage: str, seconds: int) -> Iterator[None]:
    """Let a stage run for at most ``seconds``, 0 for as long as it takes, and leave it as it was interrupted.

    Raises:
        KeyboardInterrupt: a signal said so, whatever a library made of it.
        PipelineError: what ``stop`` was given.
        TimeLimitError: the time is over; names the setting.
    """
    _received.clear()
    beyond = TimeLimitError(
        f"{stage}: not done after {seconds} s. Finished stages and epochs are kept, run again to resume, or raise "
        f"[{stage}] time_limit_seconds (0: no limit)."
    )
    watchdog = threading.Timer(seconds + GRACE_SECONDS, _end_by_force, [beyond])
    watchdog.daemon = True
    if seconds:
        signal.alarm(seconds)
        watchdog.start()
        # Code that never lets go of Python's lock stops the watchdog too; this needs no lock, and knows no code but 1.
        faulthandler.dump_traceback_later(seconds + 3 * GRACE_SECONDS, exit=True)
    try:
        with progress.heard_by(_between_steps):
            yield
        if _waiting:
            raise KeyboardInterrupt
    except PipelineError:
        raise
    except (Exception, KeyboardInterrupt):
        # Python remembers a KeyboardInterrupt that left a string of code, such as dataclasses run while a library is
        # imported, and would end this process by SIGINT, whatever its exit code, until another string has run.
        exec("")
        if _reasons:
            raise _reasons[-1] from None
        if signal.SIGALRM in _received:
            raise beyond from None
        if _received:
            if multiprocessing.parent_process() is not None:
                # A worker that Luigi forked: the first process reports it, this one would add a traceback.
                os._exit(128 + signal.SIGINT)
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.alarm(0)
        watchdog.cancel()
        faulthandler.cancel_dump_traceback_later()
        for one in (_received, _waiting, _told):
            one.clear()


def _end_by_force(beyond: TimeLimitError) -> None:
    # The thread that hangs may hold the log's lock.
    unheard = threading.Timer(GRACE_SECONDS, os._exit, [beyond.exit_code])
    unheard.daemon = True
    unheard.start()
    with tempfile.TemporaryFile() as stacks:
        faulthandler.dump_traceback(stacks)
        stacks.seek(0)
        _logger.warning("hangs, and is ended by force:\n%s", stacks.read().decode(errors="replace").rstrip())
    # Through Luigi's own logger: so the first process learns of the code where this is a worker that Luigi forked.
    logging.getLogger("luigi-interface").error("%s", beyond, exc_info=beyond)
    os._exit(beyond.exit_code)


def _interrupt(signum: int, _: object) -> None:
    _received.append(signum)
    if _waiting or not _told or time.monotonic() - _told[-1] > _PATIENCE_SECONDS:
        raise KeyboardInterrupt
    _waiting.append(signum)
    _send_again_after(_PATIENCE_SECONDS)


def _between_steps(*_: object) -> None:
    if threading.current_thread() is threading.main_thread():
        _told[:] = [time.monotonic()]
        if _waiting:
            raise KeyboardInterrupt


def _again_where_ignored(ignored: "sys.UnraisableHookArgs") -> None:
    if ignored.exc_type is None or not issubclass(ignored.exc_type, KeyboardInterrupt) or not _received:
        _hooks_before[-1](ignored)
        return
    # Later: it would be ignored again in here.
    _send_again_after(0.1)


def _send_again_after(seconds: float) -> None:
    again = threading.Timer(seconds, _send_again)
    again.daemon = True
    again.start()


def _send_again() -> None:
    # Not where the stage that it was for has ended meanwhile.
    if _received:
        os.kill(os.getpid(), _received[-1])


def _leave(signum: int, _: object) -> None:
    # Not by print: the signal may have come in the middle of one.
    os.write(2, f"\n{MESSAGE}\n".encode())
    # As if nobody had listened: a shell sees from it that its script was interrupted too.
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
