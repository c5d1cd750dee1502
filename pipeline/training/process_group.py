"""Process group of one training: rendezvous, rank and exchange of values."""

import json
import os
import re
import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipeline import machine
from pipeline.errors import SettingsError, refuse
from pipeline.settings.training import FROM_ENVIRONMENT, TrainSettings, split_address

# Variables of Slurm, of GKE for TPUs and of indexed Kubernetes jobs.
_RANKS = ("SLURM_PROCID", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX")
# The TPU port is a default. On Slurm, the job's number selects a high port, so that two jobs on a node do not collide.
_TPU_PORT, _FIRST_SLURM_PORT, _SLURM_JOBS = 8476, 61440, 4096
# JAX declares a process dead after this time. Heartbeat files detect most stops earlier.
_HEARTBEAT_SECONDS = 20
_METADATA_SECONDS = 5
# Of the metadata server of TPU VMs. An endpoint is name:id:address, or only the address on newer TPU VMs.
_ENDPOINT = re.compile(r"(?:[^:,]*:[^:,]*:)?([\w.-]+)")


@dataclass(frozen=True)
class ProcessGroup:
    """Processes that train one model together. All of them call the methods in the same order.

    ``rank`` is that of this process. ``host`` and ``port`` are the address of process 0, empty for one process.
    """

    processes: int = 1
    rank: int = 0
    host: str = ""
    port: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results."""
        return self.rank == 0

    def join(self, *, timeout_seconds: int) -> None:
        """Join JAX's service before the first computation. SettingsError: process 0 cannot listen at its address."""
        if self.processes == 1:
            return
        import jax

        if self.is_chief:
            try:
                family, *_, own = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
                socket.create_server(own[:2], family=family).close()
            except OSError as error:
                raise SettingsError(
                    f"[Train] coordinator_address: process 0 cannot listen at {self.host}:{self.port} "
                    f"({error.strerror}). Pass an address of this host with a free port."
                ) from error
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        # Under srun, JAX detects the GPUs of this process. Elsewhere, detection may search the network.
        is_of_slurm = "SLURM_LOCALID" in os.environ and os.environ.get("SLURM_PROCID") == str(self.rank)
        jax.distributed.initialize(
            address,
            self.processes,
            self.rank,
            cluster_detection_method="slurm" if is_of_slurm else "deactivate",
            coordinator_bind_address=address,
            initialization_timeout=timeout_seconds,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )

    def leave(self) -> None:
        """Wait for all processes, then leave JAX's service."""
        if self.processes > 1:
            import jax

            self.gather(None)
            jax.distributed.shutdown()

    def gather(self, value: Any) -> list[Any]:
        """Gather a JSON value of each process, in the order of ranks."""
        if self.processes == 1:
            return [value]
        import numpy as np
        from jax.experimental import multihost_utils

        content = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = multihost_utils.process_allgather(np.int32(content.size))
        # Powers of two limit the number of compiled shapes.
        padded = np.zeros(1 << int(lengths.max() - 1).bit_length(), np.uint8)
        padded[: content.size] = content
        rows = multihost_utils.process_allgather(padded)
        return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def from_chief(self, value: Any) -> Any:
        """Broadcast the JSON value of process 0."""
        return self.gather(value)[0]

    def check_equal(self, name: str, value: Any) -> None:
        """Raise a SettingsError with the value of each process if the values differ."""
        values = self.gather(value)
        if any(each != values[0] for each in values):
            raise SettingsError(
                f"[Train] processes: expected the same {name} in all processes, got "
                f"{', '.join(f'{each} (process {rank})' for rank, each in enumerate(values))}. Start all processes on "
                "one storage root and on devices of the same kind."
            )


def process_group(settings: TrainSettings, environment: Mapping[str, str] | None = None) -> ProcessGroup:
    """Process group from the settings and, for missing values, the environment. SettingsError: both lack a value."""
    if settings.processes == 1:
        return ProcessGroup()
    environment = _of_this_host() if environment is None else environment
    rank = settings.process_id
    if rank == FROM_ENVIRONMENT:
        rank = next((environment[name] for name in _RANKS if environment.get(name)), "")
        if not str(rank).isdigit() or int(rank) >= settings.processes:
            expected = f"0 to {settings.processes - 1}, because {', '.join(_RANKS)} do not define it"
            refuse("Train", "process_id", expected, rank or FROM_ENVIRONMENT)
    address = settings.coordinator_address or _coordinator(environment)
    if not address:
        absent = "JAX_COORDINATOR_ADDRESS, TPU_WORKER_HOSTNAMES and Slurm do not define it"
        refuse("Train", "coordinator_address", f"host:port of process 0, because {absent}", "")
    return ProcessGroup(settings.processes, int(rank), *split_address(address))


def _coordinator(environment: Mapping[str, str]) -> str:
    if address := environment.get("JAX_COORDINATOR_ADDRESS"):
        return address
    if workers := environment.get("TPU_WORKER_HOSTNAMES"):
        return f"{workers.split(',')[0]}:{_TPU_PORT}"
    job = environment.get("SLURM_JOB_ID", "")
    # In "node[03-07,12],login", the first host is node03.
    match = re.match(r"([^,\[]+)(?:\[(\d+))?", environment.get("SLURM_STEP_NODELIST", ""))
    if match and job.isdigit():
        return f"{match[1]}{match[2] or ''}:{_FIRST_SLURM_PORT + int(job) % _SLURM_JOBS}"
    return ""


def _of_this_host() -> Mapping[str, str]:
    """``os.environ``, on a TPU VM with a rank from Google's metadata server, unless TPU_SKIP_MDS_QUERY is set."""
    if any(map(os.environ.get, (*_RANKS, "TPU_SKIP_MDS_QUERY"))) or not machine.tpu_chips():
        return os.environ
    # JAX's cluster detection reads the same attributes.
    number, endpoints = _metadata("agent-worker-number").strip(), _metadata("worker-network-endpoints")
    hosts = [_ENDPOINT.fullmatch(endpoint.strip()) for endpoint in endpoints.split(",")]
    if not number.isdigit() or None in hosts:
        return os.environ
    return {**os.environ, "TPU_WORKER_ID": number, "TPU_WORKER_HOSTNAMES": ",".join(host[1] for host in hosts)}


@cache
def _metadata(name: str) -> str:
    """Attribute of this machine. Empty if no server responds."""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    # The server is on the local network, so no proxy applies.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_METADATA_SECONDS) as response:
            return response.read().decode()
    except (OSError, ValueError):
        return ""
