"""Receipt: the evidence of what hardware a run really used, as plain data for its record and the report.

``device_verified`` is true only where placement and probe agree with the effective device: every replica's variable and
computation was seen on a device of its own of that kind, and an accelerator is not exactly as fast as its host's CPU.
``placement["observed"]`` says whose computation: "train_function", the run's own, or "probe", a convolution of ours.
"""

import logging
import os
import platform
import re
import socket
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata

from pipeline import machine
from pipeline.config.training import TrainSettings
from pipeline.hardware import probe, words
from pipeline.hardware.flags import flags
from pipeline.hardware.placement import Placement
from pipeline.hardware.runtime import Runtime

# A host that stands in for an accelerator is as fast as itself; a real one is faster, or, as a T4 beside 64 cores, may
# even be slower. So only a ratio near 1 says anything. How near: of 60 probes of a host against itself, on 2 cores
# under a load of 3 to 10 that comes and goes, the mean over the operations was 0.80 to 1.24.
_AS_FAST_AS_HOST = 1.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What was asked for, what was had, and what shows it; every value plain JSON data.

    ``matmul_precision`` is how float32 is multiplied, as the backend says it: "highest", or "tf32" on request.
    ``processes`` has what each of several processes saw on its host, see ``seen_here``; of one it is empty.
    """

    requested: dict
    backend: str
    device_reason: str
    mismatch: dict | None
    resolver: dict
    topology: dict
    strategy: str
    num_replicas: int
    logical_devices: list[str]
    physical_devices: list[dict]
    placement: dict
    probe: dict
    host: dict
    versions: dict
    flags: dict
    matmul_precision: str
    threads: dict
    effective_device: str
    device_name: str
    device_verified: bool
    doubts: list[str]
    processes: list[dict] = field(default_factory=list)

    def to_json(self) -> dict:
        """Plain data."""
        return asdict(self)


def write_receipt(settings: TrainSettings, placement: Placement, precision: str) -> Receipt:
    """Look at the placement, time the device in the run's precision, and write down what was seen.

    Takes about half a second on a CPU, and with an accelerator, whose host is timed too, as long as that host needs for
    a trillion operations.
    """
    effective, runtime = placement.effective_device, placement.runtime
    runtime.set_matmul_precision(precision)
    seen = runtime.observe(placement.strategy)
    speeds = probe.measure(runtime, effective, precision)
    doubts = find_doubts(effective, placement.num_replicas, seen, speeds)
    asked = ("backend", "device", "precision", "jit_compile", "replicas", "on_mismatch")
    asked += ("tpu_address", "tpu_zone", "tpu_project")
    return Receipt(
        requested={name: getattr(settings, name) for name in asked},
        backend=runtime.backend,
        device_reason=placement.device_reason,
        mismatch=placement.mismatch and placement.mismatch.to_json(),
        resolver=placement.resolver,
        topology=placement.topology,
        strategy=runtime.strategy_name(placement.strategy),
        num_replicas=placement.num_replicas,
        logical_devices=runtime.logical_devices(),
        physical_devices=runtime.physical_devices(),
        placement=seen,
        probe=speeds,
        host=machine.describe(),
        versions=_versions(runtime),
        flags=flags(os.environ),
        matmul_precision=runtime.matmul_precision(),
        threads=runtime.threads(),
        effective_device=effective,
        device_name=device_name(runtime, effective),
        device_verified=not doubts,
        doubts=doubts,
    )


def seen_here(receipt: Receipt) -> dict:
    """What the other processes of a training are told of this one's device."""
    return {
        "hostname": socket.gethostname(),
        "device_name": receipt.device_name,
        "devices": receipt.logical_devices,
        "doubts": receipt.doubts,
    }


def with_processes(receipt: Receipt, processes: Sequence[Mapping]) -> Receipt:
    """The receipt of a training by several processes: it is verified where each saw its device verified."""
    receipt = replace(receipt, processes=[dict(one) for one in processes])
    doubts = _doubts_of_processes(receipt)
    return replace(receipt, device_verified=not doubts, doubts=doubts)


def _doubts_of_processes(receipt: Receipt) -> list[str]:
    return [words.of_process(number, doubt) for number, one in enumerate(receipt.processes) for doubt in one["doubts"]]


def confirm(receipt: Receipt, train_devices: Sequence[str]) -> Receipt:
    """The receipt with the devices on which the run's own train function was seen; none leaves it with the probe's."""
    if not train_devices:
        return receipt
    seen = {**receipt.placement, "computation_devices": list(train_devices), "observed": "train_function"}
    doubts = find_doubts(receipt.effective_device, receipt.num_replicas, seen, receipt.probe)
    doubts += _doubts_of_processes(receipt)
    if doubts and receipt.device_verified:
        _logger.warning("NOT verified: the train function ran elsewhere than the probe: %s", "; ".join(doubts))
    return replace(receipt, placement=seen, device_verified=not doubts, doubts=doubts)


def find_doubts(effective: str, num_replicas: int, seen: Mapping, speeds: Mapping) -> list[str]:
    """Each way in which what was seen speaks against the effective device; none where it is verified."""
    doubts = []
    for what in ("variable_devices", "computation_devices"):
        kinds = {_kind(device) for device in seen[what]}
        if kinds != {effective}:
            doubts.append(words.wrong_kind(what, effective, kinds))
        elif len(set(seen[what])) != num_replicas:
            doubts.append(words.wrong_number(what, num_replicas, len(set(seen[what]))))
    if effective != "cpu":
        ratio = statistics.geometric_mean(speeds[f"{operation}_times_host"] for operation in probe.OPERATIONS)
        if 1 / _AS_FAST_AS_HOST < ratio < _AS_FAST_AS_HOST:
            doubts.append(words.as_fast_as_host(effective, ratio))
    return doubts


def device_name(runtime: Runtime, effective_device: str) -> str:
    """The device as people know it: the processor and its granted cores, or the accelerators' names."""
    if effective_device == "cpu":
        return f"{machine.cpu_model()}, {machine.granted_cores()} cores"
    return ", ".join(device["name"] for device in runtime.physical_devices() if device["type"] == effective_device)


def _versions(runtime: Runtime) -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        **runtime.versions(),
        "keras": _installed("keras"),
        "libtpu": next((_installed(name) for name in ("libtpu", "libtpu-nightly") if _installed(name)), None),
    }
    return {name: str(version) for name, version in found.items() if version}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kind(device: str) -> str:
    """Of a name that ends in it: "/job:localhost/replica:0/task:0/device:GPU:0" and "gpu:0" are both "gpu"."""
    found = re.search(r"(\w+):\d+$", device)
    return found[1].lower() if found else "none"
