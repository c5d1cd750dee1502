"""Membership: which of several processes that train one network this is; from the settings, or what started it.

The coordinator is process 0, at an address that all others reach.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pipeline.config.refusal import refuse

#: Of [Train] process_id: as the environment says.
FROM_ENVIRONMENT = -1
MAX_PROCESSES = 4096
# What Slurm, GKE for its TPUs (hardware/tpu_vm.py on others) and an indexed job of Kubernetes call a process's number.
_IDS = ("SLURM_PROCID", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX")
# Of TPUs, where nothing else names one; of Slurm the number of the job chooses some of the last that there are, so that
# two jobs of one node do not meet.
_TPU_PORT, _FIRST_SLURM_PORT, _SLURM_JOBS = 8476, 61440, 4096
_MAX_PORT = 65535


@dataclass(frozen=True)
class Membership:
    """One of ``processes``, numbered from 0; ``host`` and ``port`` are the coordinator's, of one process empty."""

    processes: int = 1
    process_id: int = 0
    host: str = ""
    port: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all of them have made."""
        return self.process_id == 0


class _Settings(Protocol):
    """Of the section [Train]."""

    processes: int
    process_id: int
    coordinator_address: str


def membership(settings: _Settings, environment: Mapping[str, str] | None = None) -> Membership:
    """Which process this is; what the settings leave open is taken from the environment (by default the process's).

    Raises:
        SettingsError: neither of them says it.
    """
    if settings.processes == 1:
        return Membership()
    environment = os.environ if environment is None else environment
    number = settings.process_id
    if number == FROM_ENVIRONMENT:
        number = next((environment[name] for name in _IDS if environment.get(name)), "")
        if not str(number).isdigit() or int(number) >= settings.processes:
            expected = f"0 to {settings.processes - 1}, as none of {', '.join(_IDS)} says which process this is"
            refuse("Train", "process_id", expected, number or FROM_ENVIRONMENT)
    address = settings.coordinator_address or _coordinator(environment)
    if not address:
        expected = "host:port of process 0, as neither JAX_COORDINATOR_ADDRESS, TPU_WORKER_HOSTNAMES nor Slurm names it"
        refuse("Train", "coordinator_address", expected, "")
    host, port = split_address(address)
    return Membership(settings.processes, int(number), host, port)


def split_address(address: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        SettingsError: it is no such address.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) <= _MAX_PORT:
        refuse("Train", "coordinator_address", f"host:port, a port from 1 to {_MAX_PORT}", address)
    return host, int(port)


def _coordinator(environment: Mapping[str, str]) -> str:
    if given := environment.get("JAX_COORDINATOR_ADDRESS"):
        return given
    if workers := environment.get("TPU_WORKER_HOSTNAMES"):
        return f"{workers.split(',')[0]}:{_TPU_PORT}"
    nodes, job = (environment.get(name, "") for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_ID"))
    # As in "node[03-07,12],login": the first is node03.
    first = re.match(r"([^,\[]+)(?:\[(\d+))?", nodes)
    if first and job.isdigit():
        return f"{first[1]}{first[2] or ''}:{_FIRST_SLURM_PORT + int(job) % _SLURM_JOBS}"
    return ""
