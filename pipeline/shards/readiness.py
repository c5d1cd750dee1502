"""The Beam runner of the settings, and checks of its flags, programs and services.

Beam's job servers wait minutes for an engine that does not answer, and Beam downloads programs by itself. These checks
come before any work starts.
"""

import re
import shutil
import socket
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline.errors import EngineUnavailableError
from pipeline.optional_packages import install_command
from pipeline.settings.data import RecordsSettings
from pipeline.settings.setting_error import closest, refuse

CONNECT_SECONDS = 5


class Engine(NamedTuple):
    """Flags with the address of an engine and with the path of its program."""

    master: str = ""
    program: str = ""


#: The engine of each runner, by class name.
ENGINES = {
    "FlinkRunner": Engine("flink_master", "flink_job_server_jar"),
    "SparkRunner": Engine("spark_master_url", "spark_job_server_jar"),
    "PrismRunner": Engine(program="prism_location"),
    "DaskRunner": Engine("dask_client_address"),
}
# The flag with the address of a running job server, for any engine.
_JOB_ENDPOINT = "job_endpoint"
# Beam starts these engines itself, or the configuration of the engine contains the address.
_LOCAL_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|\[(local|auto|collection)\]|yarn|k8s://.*")
_PORTS = {"http": 80, "https": 443}


def make_runner(settings: RecordsSettings) -> PipelineRunner:
    """The Beam runner of the settings. Raises SettingsError if Beam does not know it, or its packages are missing."""
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
            hint = closest(name, [*valid]).replace("'", "'--", 1)
            refuse("Records", "runner_options", "valid Beam flags", f"--{name}", hint)
    return options


def require_engine(settings: RecordsSettings, runner: PipelineRunner) -> str:
    """Check that the runner's program exists and the engine answers. Return its address, "" if it is this machine."""
    name = type(runner).__name__
    engine = ENGINES.get(name)
    if engine is None:
        return ""
    endpoint, master = flag_of(settings, _JOB_ENDPOINT), flag_of(settings, engine.master)
    if endpoint:
        _require_answer(endpoint, _JOB_ENDPOINT)
    elif engine.program:
        path = flag_of(settings, engine.program)
        if not Path(path).expanduser().is_file():
            remedy = f" In a clone, build it with: make engine ENGINE={name.removesuffix('Runner').lower()}"
            refuse("Records", "runner_options", f"--{engine.program}=<an existing file>", path, remedy)
        if engine.program.endswith("_jar") and not shutil.which("java"):
            refuse("Records", "runner", f"java on the PATH, for {name}", "none")
    if master:
        _require_answer(master, engine.master)
    return master or endpoint


def flag_of(settings: RecordsSettings, name: str) -> str:
    """Value of a flag. "" if it is missing, or if Beam starts the engine itself."""
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in settings.beam_flags() if "=" in flag)
    value = flags.get(name, "")
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
