"""The processes that train one model together: the rank of this one, and the values that they share."""

import ipaddress
import json
import logging
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import SettingsError
from pipeline.settings.setting_error import refuse
from pipeline.settings.training import FROM_ENVIRONMENT, TrainSettings, split_address

# The rank by Slurm, GKE for its TPUs (hardware/tpu_vm.py on others) and an indexed job of Kubernetes.
_RANKS = ("SLURM_PROCID", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX")
# For TPUs where nothing else names a port. For Slurm the number of the job chooses one of the last ports, so that two
# jobs of one node do not meet.
_TPU_PORT, _FIRST_SLURM_PORT, _SLURM_JOBS = 8476, 61440, 4096
# Until JAX takes a silent process for gone. The presence files find most of them earlier.
_HEARTBEAT_SECONDS = 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one model, and the ``rank`` of this one. All call each method at the same points.

    ``host`` and ``port`` are the address of process 0, empty for one process.
    """

    processes: int = 1
    rank: int = 0
    host: str = ""
    port: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results of all."""
        return self.rank == 0

    def join(self, *, timeout_seconds: int) -> None:
        """Join JAX's service, before JAX computes. SettingsError: process 0 cannot listen at its address."""
        if self.processes == 1:
            return
        import jax

        if self.is_chief:
            self._check_address()
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        # Under srun JAX knows the cards of this process. Elsewhere it may search the network.
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
        """Leave JAX's service when all processes have come this far."""
        if self.processes > 1:
            import jax

            self.gather(None)
            jax.distributed.shutdown()

    def gather(self, value: Any) -> list[Any]:
        """The JSON value of each process, by rank."""
        if self.processes == 1:
            return [value]
        import numpy as np
        from jax.experimental import multihost_utils

        content = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = multihost_utils.process_allgather(np.int32(content.size))
        # A power of two, so that few shapes are compiled.
        padded = np.zeros(1 << int(lengths.max() - 1).bit_length(), np.uint8)
        padded[: content.size] = content
        rows = multihost_utils.process_allgather(padded)
        return [json.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def from_chief(self, value: Any) -> Any:
        """The JSON value of process 0."""
        return self.gather(value)[0]

    def check_equal(self, what: str, value: Any) -> None:
        """Raise a SettingsError with the value of each process if they differ."""
        values = self.gather(value)
        if any(one != values[0] for one in values):
            found = "; ".join(f"process {rank}: {one}" for rank, one in enumerate(values))
            raise SettingsError(
                f"[Train] processes: expected the same {what} in all, got {found}. Start all on one storage root, with "
                "devices of one kind."
            )

    def _check_address(self) -> None:
        try:
            family, *_, where = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            socket.create_server(where[:2], family=family).close()
        except OSError as error:
            raise SettingsError(
                f"[Train] coordinator_address: process 0 cannot listen at {self.host}:{self.port} ({error.strerror}). "
                "It has to be an address of this host with a free port."
            ) from error
        if ipaddress.ip_address(where[0]).is_loopback and self.host not in ("localhost", where[0]):
            _logger.warning(
                "[Train] coordinator_address: %s is %s on this host, where no other reaches it. Name its address in "
                "the network, if there are processes on others.",
                *(self.host, where[0]),
            )


def process_group(settings: TrainSettings, environment: Mapping[str, str] = os.environ) -> ProcessGroup:
    """The processes of the settings. The environment decides what these leave open. SettingsError: it does not."""
    if settings.processes == 1:
        return ProcessGroup()
    rank = settings.process_id
    if rank == FROM_ENVIRONMENT:
        rank = next((environment[name] for name in _RANKS if environment.get(name)), "")
        if not str(rank).isdigit() or int(rank) >= settings.processes:
            refuse(
                "Train",
                "process_id",
                f"0 to {settings.processes - 1}, as none of {', '.join(_RANKS)} says which process this is",
                rank or FROM_ENVIRONMENT,
            )
    address = settings.coordinator_address or _coordinator(environment)
    if not address:
        refuse(
            "Train",
            "coordinator_address",
            "host:port of process 0, as neither JAX_COORDINATOR_ADDRESS, TPU_WORKER_HOSTNAMES nor Slurm names it",
            "",
        )
    return ProcessGroup(settings.processes, int(rank), *split_address(address))


def _coordinator(environment: Mapping[str, str]) -> str:
    if given := environment.get("JAX_COORDINATOR_ADDRESS"):
        return given
    if workers := environment.get("TPU_WORKER_HOSTNAMES"):
        return f"{workers.split(',')[0]}:{_TPU_PORT}"
    job = environment.get("SLURM_JOB_ID", "")
    # As in "node[03-07,12],login": the first is node03.
    first = re.match(r"([^,\[]+)(?:\[(\d+))?", environment.get("SLURM_STEP_NODELIST", ""))
    if first and job.isdigit():
        return f"{first[1]}{first[2] or ''}:{_FIRST_SLURM_PORT + int(job) % _SLURM_JOBS}"
    return ""
