"""The processes that train one model together: they join JAX's service and share values."""

import ipaddress
import json
import logging
import os
import socket
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.config.membership import Membership
from pipeline.errors import SettingsError

# Until JAX takes a silent process for gone. The presence files find most of them earlier.
_HEARTBEAT_SECONDS = 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one model. All of them call each method at the same points."""

    rank: int = 0
    processes: int = 1

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results of all."""
        return self.rank == 0

    def gather(self, value: Any) -> list[Any]:
        """The JSON value of each process, by rank."""
        if self.processes == 1:
            return [value]
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
            found = "; ".join(f"process {number}: {one}" for number, one in enumerate(values))
            raise SettingsError(
                f"[Train] processes: expected the same {what} in all, got {found}. Start all on one storage root, with "
                "devices of one kind."
            )


def join(membership: Membership, *, timeout_seconds: int) -> ProcessGroup:
    """Join the other processes by JAX's service, before JAX computes.

    Raises:
        SettingsError: process 0 cannot listen at the coordinator's address.
    """
    if membership.processes > 1:
        import jax

        host = f"[{membership.host}]" if ":" in membership.host else membership.host
        if membership.is_chief:
            _check_address(membership)
        # Under srun JAX knows the cards of this process. Elsewhere it may search the network.
        is_of_slurm = "SLURM_LOCALID" in os.environ and os.environ.get("SLURM_PROCID") == str(membership.process_id)
        jax.distributed.initialize(
            f"{host}:{membership.port}",
            membership.processes,
            membership.process_id,
            cluster_detection_method="slurm" if is_of_slurm else "deactivate",
            coordinator_bind_address=f"{host}:{membership.port}",
            initialization_timeout=timeout_seconds,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
        )
    return ProcessGroup(membership.process_id, membership.processes)


def leave(group: ProcessGroup) -> None:
    """Leave JAX's service when all processes have come this far."""
    if group.processes > 1:
        import jax

        group.gather(None)
        jax.distributed.shutdown()


def _check_address(membership: Membership) -> None:
    try:
        family, *_, where = socket.getaddrinfo(membership.host, membership.port, type=socket.SOCK_STREAM)[0]
        socket.create_server(where[:2], family=family).close()
    except OSError as error:
        raise SettingsError(
            f"[Train] coordinator_address: process 0 cannot listen at {membership.host}:{membership.port} "
            f"({error.strerror}). It has to be an address of this host with a free port."
        ) from error
    if ipaddress.ip_address(where[0]).is_loopback and membership.host not in ("localhost", where[0]):
        _logger.warning(
            "[Train] coordinator_address: %s is %s on this host, where no other reaches it. Name its address in the "
            "network, if there are processes on others.",
            *(membership.host, where[0]),
        )
