"""Beam's worker processes: one that dies ends the job (the shards' aid).

With ``--direct_running_mode=multi_processing`` Beam's local runner starts processes and reads from them. It notices one
that breaks off, but waits without end for one that died before it had connected, and, on the way out of a failed job,
for the others, of which one that is still starting does not end by itself. So the thread that waits for a process is
listened to: after the death of one the others are killed, and the wait is broken off.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

import psutil

from pipeline.errors import WorkerDiedError

# Name of the thread in which Beam waits for one worker process; it raises when the process ends with an error.
_WAITING_THREAD = "run_worker"
# Part of the command line of the worker processes that Beam itself starts; a worker pool is no such one.
_WORKER_COMMAND = "apache_beam.runners.worker.sdk_worker_main"
# Name of the thread in which Beam reads what a job server says; it raises where the server is stopped as the job was
# cancelled, of which the main thread tells.
_READING_THREAD = "wait_until_finish_read"
# What Beam says when a worker it reads from is gone.
_BROKEN_OFF = "Channel closed prematurely"
# For Beam to notice by itself, and for a job that failed otherwise to take its workers down.
PATIENCE_SECONDS = 5


@contextlib.contextmanager
def watching_workers() -> Iterator[None]:
    """Run the block, a Beam job in the main thread, so that the death of a worker process ends it.

    Raises:
        WorkerDiedError: a worker process died; names how.
    """
    deaths: list[str] = []
    others: list[threading.ExceptHookArgs] = []
    broken_off, ended = threading.Event(), threading.Event()
    waiting = threading.main_thread().ident

    def break_off() -> None:
        # More than once: Beam may be starting a worker meanwhile, and waits in more than one place.
        while not ended.wait(PATIENCE_SECONDS):
            broken_off.set()
            _kill_workers()
            # A real signal: the main thread waits in a system call that a merely pending interrupt would not wake. And
            # one of our own: in a shell's background SIGINT is ignored.
            signal.pthread_kill(waiting, signal.SIGUSR2)

    breaker = threading.Thread(target=break_off, daemon=True)

    def listen(arguments: threading.ExceptHookArgs) -> None:
        if arguments.thread is not None and arguments.thread.name == _READING_THREAD:
            return
        if arguments.thread is None or arguments.thread.name != _WAITING_THREAD:
            others.append(arguments)
            return
        deaths.append(str(arguments.exc_value))
        if len(deaths) == 1:
            breaker.start()

    def interrupt(*_: object) -> None:
        if not ended.is_set():
            raise _Unnoticed

    hook_before, threading.excepthook = threading.excepthook, listen
    handler_before = signal.signal(signal.SIGUSR2, interrupt)
    try:
        yield
    except (Exception, _Unnoticed) as error:
        if _BROKEN_OFF not in str(error) and not broken_off.is_set():
            raise
        others.clear()
        raise WorkerDiedError(
            f"a worker process of the Beam job died ({deaths[0] if deaths else error}; -9 and 137 are often the system "
            "short of memory). Run again; fewer workers need less memory, see [Records] runner_options."
        ) from error
    finally:
        ended.set()
        if deaths:
            breaker.join()
        signal.signal(signal.SIGUSR2, handler_before)
        _kill_workers()
        for thread in threading.enumerate():
            if thread.name == _WAITING_THREAD:
                thread.join(PATIENCE_SECONDS)
        threading.excepthook = hook_before
        for arguments in others:
            hook_before(arguments)


class _Unnoticed(BaseException):
    """Nothing in Beam catches it."""


def _kill_workers() -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(_WORKER_COMMAND in part for part in process.cmdline()):
                process.kill()
