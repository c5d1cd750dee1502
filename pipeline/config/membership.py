"""Which of several processes that train one network this is, by the settings or by what started it.

The coordinator is process 0, at an address that all others reach.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.config.refusal import refuse
from pipeline.config.training import FROM_ENVIRONMENT, TrainSettings, split_address

# The number of a process by Slurm, GKE for its TPUs (hardware/tpu_vm.py on others) and an indexed job of Kubernetes.
_IDS = ("SLURM_PROCID", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX")
# For TPUs where nothing else names a port. For Slurm the number of the job chooses one of the last ports, so that two
# jobs of one node do not meet.
_TPU_PORT, _FIRST_SLURM_PORT, _SLURM_JOBS = 8476, 61440, 4096


@dataclass(frozen=True)
class Membership:
    """One of ``processes``, numbered from 0. ``host`` and ``port`` are the coordinator's, empty for one process."""

    processes: int = 1
    process_id: int = 0
    host: str = ""
    port: int = 0

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all of them have made."""
        return self.process_id == 0


def membership(settings: TrainSettings, environment: Mapping[str, str] = os.environ) -> Membership:
    """Which process this is. The environment decides what the settings leave open.

    Raises:
        SettingsError: neither of them says it.
    """
    if settings.processes == 1:
        return Membership()
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
    return Membership(settings.processes, int(number), *split_address(address))


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
