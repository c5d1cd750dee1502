"""Beam's runners, checks of their programs and services, and execution of pipelines with cancellation on a cluster.

Beam's job servers wait minutes for an engine that does not answer, and Beam downloads programs by itself. The checks
come before any work starts.
"""

import contextlib
import logging
import re
import shutil
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import apache_beam as beam
import psutil
import requests
from apache_beam import pipeline as beam_pipeline
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.utils import interactive_utils
from apache_beam.utils.subprocess_server import SubprocessServer

from pipeline import errors
from pipeline.errors import EngineUnavailableError, PipelineError, WorkerDiedError, closest, plural, refuse
from pipeline.optional_packages import install_command
from pipeline.settings.data import RecordsSettings
from pipeline.shards import workers
from pipeline.shards.shared import Store, shared_by_workers

CONNECT_SECONDS = 5


#: Class name of a runner → flags with the address of its engine and with the path of its program.
ENGINES = {
    "FlinkRunner": ("flink_master", "flink_job_server_jar"),
    "SparkRunner": ("spark_master_url", "spark_job_server_jar"),
    "PrismRunner": ("", "prism_location"),
    "DaskRunner": ("dask_client_address", ""),
}
# The flag with the address of a running job server, for any engine.
_JOB_ENDPOINT = "job_endpoint"
# Beam starts these engines itself, or the configuration of the engine contains the address.
_LOCAL_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|\[(local|auto|collection)\]|yarn|k8s://.*")
_PORTS = {"http": 80, "https": 443}
# The last line of a traceback, to which Beam appends the name of the step.
_RAISED = re.compile(r"^pipeline\.errors\.(?P<name>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
# More than the workers of most clusters, because the engine chooses the worker of each element.
_NUM_TRIAL_ELEMENTS = 64
# The thread in which Beam waits for one worker process raises if the process ends with an error. The one in which Beam
# reads from a job server raises after a cancellation, which the main thread reports.
_WAITING_THREAD, _READING_THREAD = "run_worker", "wait_until_finish_read"
# In the command line of worker processes that Beam itself starts.
_WORKER_COMMAND = "apache_beam.runners.worker.sdk_worker_main"
# Beam's message if the connection to a worker is lost.
_DISCONNECTED = "Channel closed prematurely"
# Time for Beam to detect a death by itself, and for a failed job to stop its workers.
PATIENCE_SECONDS = 5
_logger = logging.getLogger(__name__)


def make_runner(settings: RecordsSettings) -> PipelineRunner:
    """The Beam runner of the settings. SettingsError: Beam does not know it, or its packages are missing."""
    try:
        return create_runner(settings.runner)
    except (ValueError, AttributeError, ImportError) as error:
        remedy = f". Install its packages with: {install_command('dask')}" * settings.runner.endswith("DaskRunner")
        expected = "the name or dotted class of an installed Beam runner"
        refuse("Records", "runner", expected, settings.runner, f" {error}{remedy}")


def make_options(settings: RecordsSettings, runner: PipelineRunner) -> PipelineOptions:
    """The flags of the settings as Beam's options. SettingsError: Beam does not know a flag, and would only warn."""
    options = PipelineOptions(settings.beam_flags())
    valid = options.get_all_options()
    # The flags of a job server are only known when it runs.
    if not isinstance(runner, PortableRunner):
        for name in options.get_all_options(retain_unknown_options=True).keys() - valid.keys():
            refuse("Records", "runner_options", "valid Beam flags", f"--{name}", closest(name, [*valid]))
    return options


def require_engine(settings: RecordsSettings, runner: PipelineRunner) -> str:
    """Check that the runner's program exists and the engine answers. Return its address, "" if it is this machine."""
    name = type(runner).__name__
    if name not in ENGINES:
        return ""
    master_flag, program = ENGINES[name]
    endpoint, master = _flag_of(settings, _JOB_ENDPOINT), _flag_of(settings, master_flag)
    if program and not endpoint:
        path = _flag_of(settings, program)
        if not Path(path).expanduser().is_file():
            remedy = f" In a clone, build it with: make engine ENGINE={name.removesuffix('Runner').lower()}"
            refuse("Records", "runner_options", f"--{program}=<an existing file>", path, remedy)
        if program.endswith("_jar") and not shutil.which("java"):
            refuse("Records", "runner", f"java on the PATH, for {name}", "none")
    for flag, address in ((_JOB_ENDPOINT, endpoint), (master_flag, master)):
        if address:
            _require_answer(address, flag)
    return master or endpoint


def _flag_of(settings: RecordsSettings, name: str) -> str:
    """Value of a flag. "" if it is missing, or if Beam starts the engine itself."""
    flags = (flag.removeprefix("--").partition("=") for flag in settings.beam_flags())
    value = {flag: value for flag, _, value in flags}.get(name, "")
    return "" if _LOCAL_MASTER.fullmatch(value) else value


def _require_answer(address: str, flag: str) -> None:
    """Check that a service listens at an address, which may have a scheme."""
    try:
        # Of several masters, check the first.
        url = urlsplit((address if "//" in address else f"//{address}").partition(",")[0])
        host, port = url.hostname, url.port or _PORTS.get(url.scheme)
    except ValueError:
        host = port = None
    if not host or not port:
        refuse("Records", "runner_options", f"--{flag}=<host>:<port>", address)
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise EngineUnavailableError(
            f"[Records] runner_options: nothing answers at --{flag}={address} ({error.strerror or error}). Start the "
            'cluster, or correct the address. Check it with "tensorcraft doctor".'
        ) from error


@contextlib.contextmanager
def running(settings: RecordsSettings) -> Iterator[beam.Pipeline]:
    """Yield a Beam pipeline with the runner and flags of the settings. It runs at the end of the block.

    Raises the errors of the checks, and a WorkerDiedError if a worker process that Beam started here died.
    """
    runner = make_runner(settings)
    options = make_options(settings, runner)
    job_options = options.view_as(GoogleCloudOptions)
    # A unique name identifies the job on the cluster.
    job_options.job_name = f"{job_options.job_name or 'tensorcraft'}-{uuid.uuid4().hex[:12]}"
    require_engine(settings, runner)
    # Jobs of one process share a job server.
    with as_in_a_script(), SubprocessServer.cache_subprocesses(), watching_workers():
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        try:
            _run(pipeline, settings, job_options.job_name)
        except RuntimeError as error:
            if raised := raised_by_worker(str(error)):
                raise raised from error
            raise


def _run(pipeline: beam.Pipeline, settings: RecordsSettings, name: str) -> None:
    handler, result, ended = signal.getsignal(signal.SIGINT), None, Future()

    def wait() -> None:
        try:
            ended.set_result(result.wait_until_finish())
        except BaseException as error:
            ended.set_exception(error)

    try:
        result = pipeline.run()
        # Beam's own handler would stop the job server before the job can be cancelled.
        signal.signal(signal.SIGINT, handler)
        # In a thread, because Beam closes the channel for cancellations if the wait is interrupted.
        threading.Thread(target=wait, daemon=True).start()
        ended.result()
    except BaseException:
        if result is not None and not ended.done():
            _cancel(result.cancel, name)
        if master := _flag_of(settings, "flink_master"):
            _cancel(partial(_cancel_on_flink, master, name), name)
        raise


def raised_by_worker(text: str) -> PipelineError | None:
    """The PipelineError that a worker raised, from the text of an engine's error."""
    for match in reversed([*_RAISED.finditer(text)]):
        kind = getattr(errors, match["name"], None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            # Steps raise only errors whose single argument is a message.
            with contextlib.suppress(TypeError):
                return kind(match["message"])
    return None


def _cancel(cancel: Callable[[], object], name: str) -> None:
    """Cancel a job on its cluster. A runner in this process ends with the process and cannot be canceled."""
    try:
        with contextlib.suppress(NotImplementedError):
            cancel()
    # An error of a client must not hide the reason of the cancellation. Ctrl-C in a terminal stops the job server too.
    # Then only Flink's own interface works.
    except Exception as error:
        _logger.warning("Job %s could not be canceled and may still run on the cluster. %s", name, _last_line(error))


def _cancel_on_flink(master: str, name: str) -> None:
    """Cancel the job with Flink's REST API. The job server of Beam 2.77 only stops waiting."""
    url = master if "//" in master else f"http://{master}"
    with requests.Session() as session:
        # Without the proxies of the environment, like Java.
        session.trust_env = False
        for job in session.get(f"{url}/jobs/overview", timeout=CONNECT_SECONDS).json()["jobs"]:
            if job["name"] == name and job["end-time"] < 0:
                session.patch(f"{url}/jobs/{job['jid']}?mode=cancel", timeout=CONNECT_SECONDS).raise_for_status()


def _last_line(error: Exception) -> str:
    """The last line of an engine's error, after the stack trace."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def try_engine(settings: RecordsSettings, root: Path, store: Store | None = None) -> str:
    """Run a job without records to check an engine and its workers. Return a sentence about them."""
    runner = make_runner(settings)
    name = f"Beam's {type(runner).__name__}"
    if not (address := require_engine(settings, runner)):
        return name
    # A late attempt may still write to the folder.
    with (
        tempfile.TemporaryDirectory(prefix=".reach-", dir=root, ignore_cleanup_errors=True) as folder,
        shared_by_workers(Path(folder), store) as shared,
    ):
        workers.expect(shared)
        try:
            with running(settings) as pipeline:
                (
                    pipeline
                    | "Plan checks" >> beam.Create(range(_NUM_TRIAL_ELEMENTS))  # number
                    | "Spread checks" >> beam.Reshuffle()  # number
                    | "Check worker" >> beam.Map(lambda _, shared: workers.sign_in(shared), shared)  # None
                )
        except PipelineError:
            raise
        # Clients raise errors of every kind. A worker without the project cannot even start.
        except Exception as error:
            raise EngineUnavailableError(f"{name} at {address}: a test job failed. {_last_line(error)}") from error
        counts = workers.signed_in(shared)
    hosts, storage = plural(counts["hosts"], "host"), "remote" if store else "storage root"
    return (
        f"{name} at {address}: {counts['processes']} worker processes on {hosts} can access the {storage} and have "
        "this version of the project and its packages"
    )


@contextlib.contextmanager
def watching_workers() -> Iterator[None]:
    """End the Beam job of the block with a WorkerDiedError if a worker process dies.

    With ``--direct_running_mode=multi_processing``, Beam waits forever for a process that died before it connected.
    After a failed job, it waits for processes that are still starting. This block therefore observes the threads that
    wait for a process. After a death, it kills the other processes and interrupts the wait in the main thread.
    """
    deaths: list[str] = []
    exceptions: list[threading.ExceptHookArgs] = []
    was_interrupted, ended, main_thread = threading.Event(), threading.Event(), threading.main_thread().ident

    def interrupt_wait() -> None:
        # Repeatedly, because Beam may be starting a worker and waits more than once.
        while not ended.wait(PATIENCE_SECONDS):
            was_interrupted.set()
            _kill_workers()
            # A real signal, because the main thread waits in a system call. Not SIGINT, which background jobs ignore.
            signal.pthread_kill(main_thread, signal.SIGUSR2)

    interrupter = threading.Thread(target=interrupt_wait, daemon=True)

    def listen(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread and arguments.thread.name
        if name == _WAITING_THREAD:
            deaths.append(str(arguments.exc_value))
            if len(deaths) == 1:
                interrupter.start()
        elif name != _READING_THREAD:
            exceptions.append(arguments)

    def interrupt(*_: object) -> None:
        if not ended.is_set():
            raise _Unnoticed

    previous_hook, threading.excepthook = threading.excepthook, listen
    previous_handler = signal.signal(signal.SIGUSR2, interrupt)
    try:
        yield
    except (Exception, _Unnoticed) as error:
        if _DISCONNECTED not in str(error) and not was_interrupted.is_set():
            raise
        exceptions.clear()
        raise WorkerDiedError(
            f"A worker process of the Beam job died ({deaths[0] if deaths else error}). The exit codes -9 and 137 "
            "often mean that memory was short. Run again, or use fewer workers ([Records] runner_options)."
        ) from error
    finally:
        ended.set()
        if deaths:
            interrupter.join()
        signal.signal(signal.SIGUSR2, previous_handler)
        _kill_workers()
        for thread in threading.enumerate():
            if thread.name == _WAITING_THREAD:
                thread.join(PATIENCE_SECONDS)
        threading.excepthook = previous_hook
        for arguments in exceptions:
            previous_hook(arguments)


class _Unnoticed(BaseException):
    """Interrupts the wait. Beam does not catch it, as it is no Exception."""


def _kill_workers() -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(_WORKER_COMMAND in argument for argument in process.cmdline()):
                process.kill()


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Let Beam ignore that it runs in a notebook.

    In IPython, Beam 2.77 imports its interactive modules, which need pandas 2, and adds cell numbers to names of steps.
    """
    original = beam_pipeline.is_in_ipython
    beam_pipeline.is_in_ipython = interactive_utils.is_in_ipython = lambda: False
    try:
        yield
    finally:
        beam_pipeline.is_in_ipython = interactive_utils.is_in_ipython = original
