"""Engine: runs a Beam pipeline in this process or on a cluster, and cancels it there if it is interrupted here."""

import contextlib
import logging
import re
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import apache_beam as beam
import psutil
import requests
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.utils import interactive_utils
from apache_beam.utils.subprocess_server import SubprocessServer

from pipeline import errors
from pipeline.errors import EngineUnavailableError, PipelineError, WorkerDiedError
from pipeline.settings.data import RecordsSettings
from pipeline.shards import heartbeat
from pipeline.shards.readiness import CONNECT_SECONDS, flag_of, make_options, make_runner, require_engine
from pipeline.shards.shared import Store, shared_by_workers

# The last line of a traceback, and what Beam appends to it about the step.
_RAISED = re.compile(r"^pipeline\.errors\.(?P<name>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
# More than most clusters have workers. The engine chooses which worker gets an element.
_TRIAL_ELEMENTS = 64
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
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def running(settings: RecordsSettings) -> Iterator[beam.Pipeline]:
    """A Beam pipeline that runs at the end of the block, with the runner and flags of the settings.

    Raises:
        SettingsError: Beam does not know the runner or a flag, or a program is missing.
        EngineUnavailableError: the engine does not answer.
        WorkerDiedError: a worker process that Beam started here died.
    """
    runner = make_runner(settings)
    options = make_options(settings, runner)
    named = options.view_as(GoogleCloudOptions)
    # A unique name, by which the job is found on the cluster.
    named.job_name = f"{named.job_name or 'tensorcraft'}-{uuid.uuid4().hex[:12]}"
    require_engine(settings, runner)
    # Jobs of one process share a job server.
    with as_in_a_script(), SubprocessServer.cache_subprocesses(), watching_workers():
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        try:
            _run(pipeline, settings, named.job_name)
        except RuntimeError as error:
            if raised := raised_by_worker(str(error)):
                raise raised from error
            raise


def _run(pipeline: beam.Pipeline, settings: RecordsSettings, name: str) -> None:
    handler = signal.getsignal(signal.SIGINT)
    result, ended = None, Future()

    def wait() -> None:
        try:
            ended.set_result(result.wait_until_finish())
        except BaseException as error:
            ended.set_exception(error)

    try:
        result = pipeline.run()
        # Beam's own handler would stop the job server before the job can be cancelled.
        signal.signal(signal.SIGINT, handler)
        # In a thread: if the wait is interrupted, Beam closes the channel that cancels the job.
        threading.Thread(target=wait, daemon=True).start()
        ended.result()
    except BaseException:
        if result is not None and not ended.done():
            _cancel(result.cancel, name)
        if master := flag_of(settings, "flink_master"):
            _cancel(partial(_cancel_on_flink, master, name), name)
        raise


def raised_by_worker(text: str) -> PipelineError | None:
    """The error of ours that a worker raised, from the text of an engine's error."""
    for match in reversed([*_RAISED.finditer(text)]):
        kind = getattr(errors, match["name"], None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            # Steps raise no error that takes more than a message.
            with contextlib.suppress(TypeError):
                return kind(match["message"])
    return None


def _cancel(way: Callable[[], object], name: str) -> None:
    """Cancel a job on its cluster. The runner of this process ends with it and cannot be cancelled."""
    try:
        with contextlib.suppress(NotImplementedError):
            way()
    # No error of a client may hide the reason of the cancellation. Ctrl-C in a terminal stops the job server too. Then
    # only Flink's own interface works.
    except Exception as error:
        _logger.warning("job %s: it may go on on the cluster, cancelling it failed: %s", name, _last_line(error))


def _cancel_on_flink(master: str, name: str) -> None:
    """Cancel the job by Flink's REST API. Beam 2.77's job server only stops waiting for it."""
    url = master if "//" in master else f"http://{master}"
    with requests.Session() as session:
        # Without the environment's proxies, as Java connects.
        session.trust_env = False
        for job in session.get(f"{url}/jobs/overview", timeout=CONNECT_SECONDS).json()["jobs"]:
            if job["name"] == name and job["end-time"] < 0:
                session.patch(f"{url}/jobs/{job['jid']}?mode=cancel", timeout=CONNECT_SECONDS).raise_for_status()


def _last_line(error: Exception) -> str:
    """The last line of an engine's error, after the stack trace."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def reach(settings: RecordsSettings, root: Path, store: Store | None = None) -> str:
    """Check by a job without records that an engine's workers could write them (for ``make doctor``).

    ``root`` is the storage root. Returns a sentence about the workers.

    Raises:
        SettingsError: Beam does not know the runner or a flag, or a program is missing.
        EngineUnavailableError: the engine does not answer, or a worker lacks the root, the code or the packages.
    """
    runner = make_runner(settings)
    name = f"Beam's {type(runner).__name__}"
    if not (where := require_engine(settings, runner)):
        return name
    # A late attempt may still write there.
    with (
        tempfile.TemporaryDirectory(prefix=".reach-", dir=root, ignore_cleanup_errors=True) as folder,
        shared_by_workers(Path(folder), store) as shared,
    ):
        heartbeat.expect(shared)
        try:
            with running(settings) as pipeline:
                (
                    pipeline
                    | "Plan meetings" >> beam.Create(range(_TRIAL_ELEMENTS))  # number
                    | "Spread meetings" >> beam.Reshuffle()  # number
                    | "Meet" >> beam.Map(lambda _, shared: heartbeat.sign_in(shared), shared)  # None
                )
        except PipelineError:
            raise
        # Clients raise errors of every kind. A worker without the project cannot even start.
        except Exception as error:
            raise EngineUnavailableError(
                f"{name} at {where}: a job that writes nothing failed there: {_last_line(error)}"
            ) from error
        found = heartbeat.signed_in(shared)
    return (
        f"{name} at {where}: {found['processes']} worker processes on {found['hosts']} hosts answered; they see the "
        f"{'remote' if store else 'storage root'}, with this version of the project and its packages"
    )


@contextlib.contextmanager
def watching_workers() -> Iterator[None]:
    """Run a Beam job in the main thread, so that the death of a worker process ends it. Raises WorkerDiedError.

    With ``--direct_running_mode=multi_processing`` Beam waits forever for a process that died before it connected, and
    on the way out of a failed job for processes that are still starting. So the threads that wait for a process are
    observed. After a death the other processes are killed and the wait is interrupted.
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


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Build and run Beam pipelines in the block as outside of notebooks.

    In IPython, Beam 2.77 imports its interactive parts, which need pandas 2, and puts cell numbers into names of steps.
    """
    original = beam_pipeline.is_in_ipython
    beam_pipeline.is_in_ipython = interactive_utils.is_in_ipython = lambda: False
    try:
        yield
    finally:
        beam_pipeline.is_in_ipython = interactive_utils.is_in_ipython = original
