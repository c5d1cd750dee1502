"""The receipt: evidence of the hardware that a run used, as plain data.

``device_verified`` requires that each replica's variable and computation was seen on its own device of the effective
kind, and that an accelerator is not exactly as fast as its host's CPU. ``placement["observed"]`` names the observed
computation: "train_function" of the run, or "probe".
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
from pipeline.errors import message
from pipeline.hardware import probe
from pipeline.hardware.backend import flags
from pipeline.hardware.placement import Placement
from pipeline.hardware.runtime import Runtime

# Only a ratio near 1 shows that the host replaced an accelerator: a real one may even be slower, such as a T4 beside 64
# cores. In 60 probes of a host against itself, on 2 cores with a load of 3 to 10, the mean ratio was 0.80 to 1.24.
_AS_FAST_AS_HOST = 1.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Requested and effective hardware with the evidence, as plain JSON data.

    ``matmul_precision`` of float32 is "highest" or "tf32". ``processes``: ``seen_here`` of each of several processes.
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
    """Observe the placement and time the device in the run's precision.

    Takes half a second on a CPU. With an accelerator, the host is timed too, with a trillion operations.
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
    """The device of this process, for the other processes of the training."""
    return {
        "hostname": socket.gethostname(),
        "device_name": receipt.device_name,
        "devices": receipt.logical_devices,
        "doubts": receipt.doubts,
    }


def with_processes(receipt: Receipt, processes: Sequence[Mapping]) -> Receipt:
    """The receipt of a training by several processes. It is verified if each process verified its device."""
    receipt = replace(receipt, processes=[dict(one) for one in processes])
    doubts = _doubts_of_processes(receipt)
    return replace(receipt, device_verified=not doubts, doubts=doubts)


def _doubts_of_processes(receipt: Receipt) -> list[str]:
    return [_of_process(number, doubt) for number, one in enumerate(receipt.processes) for doubt in one["doubts"]]


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
    """Failed checks of the effective device. None: it is verified."""
    doubts = []
    for what in ("variable_devices", "computation_devices"):
        kinds = {_kind(device) for device in seen[what]}
        if kinds != {effective}:
            doubts.append(_wrong_devices(what, effective, ", ".join(sorted(kinds))))
        elif len(set(seen[what])) != num_replicas:
            doubts.append(_wrong_devices(what, num_replicas, len(set(seen[what]))))
    if effective != "cpu":
        ratio = statistics.geometric_mean(speeds[f"{operation}_times_host"] for operation in probe.OPERATIONS)
        if 1 / _AS_FAST_AS_HOST < ratio < _AS_FAST_AS_HOST:
            doubts.append(_as_fast_as_host(effective, ratio))
    return doubts


def device_name(runtime: Runtime, effective_device: str) -> str:
    """The processor with its granted cores, or the names of the accelerators."""
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
    """Kind in a device's name: "/job:localhost/replica:0/task:0/device:GPU:0" and "gpu:0" are both "gpu"."""
    found = re.search(r"(\w+):\d+$", device)
    return found[1].lower() if found else "none"


@message
def _wrong_devices(what: str, expected: str | int, seen: str | int) -> str:
    return f"{what}: expected {expected}{' devices' if isinstance(expected, int) else ''}, seen {seen}"


@message
def _as_fast_as_host(effective: str, ratio: float) -> str:
    return f"probe: {effective} computes {ratio:.2f} times as fast as its host's CPU: it may be that CPU"


@message
def _of_process(number: int, doubt: str) -> str:
    return f"process {number}: {doubt}"
