"""Engine: where the Beam job runs, in this process or on a cluster (the shards' aid).

An engine that does not answer is named before any work starts: Beam's job servers would wait for it for minutes. What
Beam would download by itself, a job server of 300 MB or Prism, is asked for by name instead. A job that is interrupted
here is cancelled there.
"""

import contextlib
import logging
import re
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import apache_beam as beam
import requests
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, create_runner
from apache_beam.utils.subprocess_server import SubprocessServer

from pipeline import errors
from pipeline.config.data import RecordsSettings
from pipeline.config.refusal import closest, refuse
from pipeline.errors import EngineUnavailableError, PipelineError
from pipeline.shards.notebook import as_in_a_script
from pipeline.shards.workers import watching_workers

_CONNECT_SECONDS = 5
# As a traceback ends, with what Beam says of the step after it.
_RAISED = re.compile(r"^pipeline\.errors\.(?P<name>\w+): (?P<message>.*?)(?: \[while running .*)?$", re.MULTILINE)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Engine:
    """What the flags of an engine's runner are called.

    ``runner``: the name of its class. ``master``: the flag that says where it listens. ``part``: the flag that names
    the program beside Beam that it needs, and that Beam would download. ``command``: what that is started by.
    """

    runner: str
    master: str = ""
    part: str = ""
    command: str = ""


ENGINES = (
    Engine("FlinkRunner", "flink_master", "flink_job_server_jar", "java"),
    Engine("SparkRunner", "spark_master_url", "spark_job_server_jar", "java"),
    Engine("PrismRunner", part="prism_location"),
    Engine("DaskRunner", "dask_client_address"),
)
# A job server that runs already, for any of them.
_JOB_ENDPOINT = "job_endpoint"
# Engines by these are started by Beam itself, within this machine, or found by the engine's own configuration.
_OWN_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|\[(local|auto|collection)\]|yarn|k8s://.*")
_PORTS = {"http": 80, "https": 443}


@contextlib.contextmanager
def running(settings: RecordsSettings) -> Iterator[beam.Pipeline]:
    """A Beam pipeline to add steps to; at the end of the block it runs, with the runner and flags of the settings.

    Raises:
        SettingsError: Beam knows no such runner or flag, or a part of it is not there.
        EngineUnavailableError: the engine does not answer.
        WorkerDiedError: a process that worked for this one died.
    """
    runner = make_runner(settings)
    options = make_options(settings, runner)
    named = options.view_as(GoogleCloudOptions)
    # By which it is found again; of two runs no two are alike.
    named.job_name = f"{named.job_name or 'tensorcraft'}-{uuid.uuid4().hex[:12]}"
    require_engine(settings, runner)
    # The second lets jobs of one process share a job server.
    with as_in_a_script(), SubprocessServer.cache_subprocesses(), watching_workers():
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        try:
            _run(pipeline, settings, named.job_name)
        except RuntimeError as error:
            if raised := _raised(str(error)):
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
        # Beam's own would stop the job server before anyone can have it cancel the job.
        signal.signal(signal.SIGINT, handler)
        # In a thread: where the wait is interrupted Beam closes the channel through which a job is cancelled.
        threading.Thread(target=wait, daemon=True).start()
        ended.result()
    except BaseException:
        _cancel(None if ended.done() else result, settings, name)
        raise


def _raised(text: str) -> PipelineError | None:
    """What a worker raised for people, of which an engine hands on nothing but the text of its traceback."""
    for found in reversed([*_RAISED.finditer(text)]):
        kind = getattr(errors, found["name"], None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            # One that takes more than a message is raised by none of a job's steps.
            with contextlib.suppress(TypeError):
                return kind(found["message"])
    return None


def _cancel(result: PipelineResult | None, settings: RecordsSettings, name: str) -> None:
    """Have a cluster stop working for a job that nobody waits for; ``result``: None where Beam cannot be asked to."""
    master = _given(settings).get("flink_master", "")
    ways = [result.cancel] if result is not None else []
    if master and not _OWN_MASTER.fullmatch(master):
        ways.append(lambda: _cancel_on_flink(master, name))
    for way in ways:
        try:
            way()
        except NotImplementedError:
            # Of a runner within this process, which ends with it.
            continue
        # Whatever a cluster's client raises must not hide why the job is cancelled. Where an interrupt has reached the
        # job server too, as Ctrl-C at a terminal does, only the other way is left.
        except Exception as error:
            _logger.warning("job %s: it may go on on the cluster, cancelling it failed: %s", name, last_line(error))


def _cancel_on_flink(master: str, name: str) -> None:
    """What Beam 2.77 leaves undone: its job server stops waiting for a job, and Flink works on."""
    url = master if "//" in master else f"http://{master}"
    with requests.Session() as session:
        # As Java and the first look do, past any proxy of the environment's.
        session.trust_env = False
        for job in session.get(f"{url}/jobs/overview", timeout=_CONNECT_SECONDS).json()["jobs"]:
            if job["name"] == name and job["end-time"] < 0:
                session.patch(f"{url}/jobs/{job['jid']}?mode=cancel", timeout=_CONNECT_SECONDS).raise_for_status()


def last_line(error: Exception) -> str:
    """What an engine says at the end, after the stack of whatever language it is written in."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def make_runner(settings: RecordsSettings) -> PipelineRunner:
    """The Beam runner of the settings.

    Raises:
        SettingsError: Beam knows no such runner, or its packages are not installed.
    """
    try:
        return create_runner(settings.runner)
    except (ValueError, AttributeError, ImportError) as error:
        remedy = ". Install its packages with: make engine ENGINE=dask" * settings.runner.endswith("DaskRunner")
        expected = "the name or dotted class of an installed Beam runner"
        refuse("Records", "runner", expected, settings.runner, f" {error}{remedy}")


def make_options(settings: RecordsSettings, runner: PipelineRunner) -> PipelineOptions:
    """The flags of the settings, as Beam reads them.

    Raises:
        SettingsError: neither Beam nor the runner knows a flag; Beam itself would warn and leave it out.
    """
    options = PipelineOptions(settings.beam_flags())
    known = options.get_all_options()
    # A job server has flags of its own, and says which only once it runs.
    if not isinstance(runner, PortableRunner):
        for name in options.get_all_options(retain_unknown_options=True).keys() - known.keys():
            hint = closest(name, [*known]).replace("'", "'--", 1)
            refuse("Records", "runner_options", "flags that Beam knows", f"--{name}", hint)
    return options


def require_engine(settings: RecordsSettings, runner: PipelineRunner) -> str:
    """That what the runner needs beside Beam is there, and the engine answers.

    Returns:
        Where it listens; "" where it runs within this machine.

    Raises:
        SettingsError: a program or package is missing.
        EngineUnavailableError: nothing listens there.
    """
    engine = next((engine for engine in ENGINES if engine.runner == type(runner).__name__), None)
    if engine is None:
        return ""
    given = _given(settings)
    if endpoint := given.get(_JOB_ENDPOINT, ""):
        _require_answer(endpoint, _JOB_ENDPOINT)
    else:
        _require_part(engine, given)
    master = given.get(engine.master, "")
    if not master or _OWN_MASTER.fullmatch(master):
        return endpoint
    _require_answer(master, engine.master)
    return master


def _given(settings: RecordsSettings) -> dict[str, str]:
    """The flags of the settings that have a value."""
    return dict(flag.removeprefix("--").split("=", 1) for flag in settings.beam_flags() if "=" in flag)


def _require_part(engine: Engine, given: dict[str, str]) -> None:
    if not engine.part:
        return
    path, name = given.get(engine.part, ""), engine.runner.removesuffix("Runner").lower()
    if not Path(path).expanduser().is_file():
        expected = f"--{engine.part}=<a file that is there>"
        refuse("Records", "runner_options", expected, path, f" Build it with: make engine ENGINE={name}")
    if engine.command and not shutil.which(engine.command):
        refuse("Records", "runner", f"{engine.command} on the PATH, for {engine.runner}", "none")


def _require_answer(address: str, flag: str) -> None:
    """That something listens at an address, be it with a scheme or without."""
    try:
        # The first of several masters.
        parts = urlsplit((address if "//" in address else f"//{address}").partition(",")[0])
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        host = port = None
    if not host or not port:
        refuse("Records", "runner_options", f"--{flag}=<host>:<port>", address)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise EngineUnavailableError(
            f"[Records] runner_options: nothing answers at --{flag}={address} ({error.strerror or error}). Start the "
            'cluster, or name where it listens; "make doctor" tries it.'
        ) from error
