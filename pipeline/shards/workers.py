"""Worker processes that Beam's local runner starts: the death of one ends the job.

With ``--direct_running_mode=multi_processing`` Beam waits forever for a process that died before it connected, and on
the way out of a failed job for processes that are still starting. So the threads that wait for a process are observed.
After a death the other processes are killed and the wait is interrupted.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

import psutil

from pipeline.errors import WorkerDiedError

# The thread in which Beam waits for one worker process. It raises if the process ends with an error.
_WAITING_THREAD = "run_worker"
# Part of the command line of worker processes that Beam itself starts.
_WORKER_COMMAND = "apache_beam.runners.worker.sdk_worker_main"
# The thread in which Beam reads from a job server. It raises after a cancellation, which the main thread reports.
_READING_THREAD = "wait_until_finish_read"
# Beam's message if a connected worker is gone.
_BROKEN_OFF = "Channel closed prematurely"
# Time for Beam to notice by itself, and for a failed job to stop its workers.
PATIENCE_SECONDS = 5


@contextlib.contextmanager
def watching_workers() -> Iterator[None]:
    """Run a Beam job in the main thread, so that the death of a worker process ends it.

    Raises:
        WorkerDiedError: a worker process died.
    """
    deaths: list[str] = []
    others: list[threading.ExceptHookArgs] = []
    broken_off, ended = threading.Event(), threading.Event()
    waiting = threading.main_thread().ident

    def break_off() -> None:
        # Repeatedly: Beam may be starting a worker, and waits in several places.
        while not ended.wait(PATIENCE_SECONDS):
            broken_off.set()
            _kill_workers()
            # A real signal, because the main thread waits in a system call. Not SIGINT, which background jobs ignore.
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
    """Not caught by Beam."""


def _kill_workers() -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(_WORKER_COMMAND in part for part in process.cmdline()):
                process.kill()
