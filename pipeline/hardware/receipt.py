"""Hardware receipt: evidence of the hardware that a run used, as JSON data.

``device_verified`` requires an observed device of the effective kind for each replica's variable and computation. An
accelerator must also differ in speed from its host's CPU. ``placement["observed"]`` is the observed computation, the
"train_function" of the run or the "probe". ``processes`` lists the devices of each process in a group.
"""

import logging
import os
import platform
import re
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline import machine
from pipeline.errors import message
from pipeline.hardware.placement import Placement, choose_precision, place
from pipeline.hardware.runtime import CHANNELS_IN, CHANNELS_OUT, IMAGES, KERNEL, OPERATIONS, SIZE, TF32, Runtime, flags
from pipeline.optional_packages import installed_version
from pipeline.settings.training import TrainSettings

# Device names may be wrong, and an accelerator that is as fast as its host's CPU may be that CPU.
# Only a ratio near 1 is suspicious, because an accelerator may be slower than its host, such as a T4 with 64 cores. In
# 60 probes of a host against itself (2 cores, load 3 to 10), the mean ratio was 0.80 to 1.24.
_AS_FAST_AS_HOST = 1.5
# Rounds per operation and seconds per round. More rounds average the load of the machine in a comparison of devices.
_ROUNDS, _ROUNDS_WITH_HOST, _SECONDS = 2, 8, 0.04
# Side of the matrices, for 2 GFLOP on a CPU and 137 GFLOP on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
_CONVOLUTION_FLOP = 2 * IMAGES * SIZE**2 * KERNEL**2 * CHANNELS_IN * CHANNELS_OUT
_REQUESTED = ("backend", "device", "precision", "jit_compile", "replicas", "on_mismatch")
_logger = logging.getLogger(__name__)

Receipt = dict[str, Any]


def write_receipt(settings: TrainSettings, placement: Placement, precision: str) -> Receipt:
    """Observe the placement and benchmark the device in the run's precision.

    This takes half a second on a CPU. With an accelerator, it also benchmarks the host, with a trillion operations.
    """
    effective, runtime = placement.effective_device, placement.runtime
    runtime.set_matmul_precision(precision)
    receipt = {
        "requested": {name: getattr(settings, name) for name in _REQUESTED},
        "backend": runtime.backend,
        "device_reason": placement.device_reason,
        "mismatch": placement.mismatch,
        "topology": placement.topology,
        "num_replicas": placement.num_replicas,
        **runtime.describe(placement.strategy),
        "placement": {**runtime.observe(placement.strategy), "observed": "probe"},
        "probe": measure(runtime, effective, precision),
        "host": machine.describe(),
        "flags": flags(os.environ),
        "effective_device": effective,
        "processes": [],
    }
    versions = {"python": platform.python_version(), **{name: installed_version(name) for name in ("keras", "libtpu")}}
    versions |= receipt["versions"]
    receipt["versions"] = {name: str(version) for name, version in versions.items() if version}
    names = [device["name"] for device in receipt["physical_devices"] if device["type"] == effective]
    if effective == "cpu":
        names = [machine.cpu_model(), f"{machine.granted_cores()} cores"]
    return _checked({**receipt, "device_name": ", ".join(names)})


def measure(runtime: Runtime, device: str, precision: str) -> dict[str, float | int | str]:
    """Measure a matrix product and a convolution on "cpu", "gpu" or "tpu", in floating-point operations per second.

    Fields ``host_…`` are of an accelerator's host. ``…_times_host`` is the speed relative to the host. It is a
    geometric mean over interleaved rounds, so that the load of the machine affects both devices.
    """
    side = _SIDE if device == "cpu" else _SIDE_ON_ACCELERATOR
    flop = {"matmul": 2 * side**3, "convolution": _CONVOLUTION_FLOP}
    devices = {"": device} if device == "cpu" else {"": device, "host_": "cpu"}
    dtype = "float32" if precision == TF32 else precision
    computations = {prefix: runtime.computations(name, side, dtype) for prefix, name in devices.items()}
    for operations in computations.values():
        for compute in operations.values():
            # The first call compiles.
            compute()
    seconds = {(prefix, name): [] for prefix in devices for name in OPERATIONS}
    for number in range(_ROUNDS if device == "cpu" else _ROUNDS_WITH_HOST):
        for name in OPERATIONS:
            # The order alternates, so that a changing load favors no device.
            for prefix in list(devices)[:: -1 if number % 2 else 1]:
                seconds[prefix, name].append(_seconds(computations[prefix][name]))
    measured: dict[str, float | int | str] = {"precision": precision}
    for (prefix, name), rounds in seconds.items():
        measured[f"{prefix}{name}_flops_per_second"] = round(flop[name] / min(rounds))
    if device != "cpu":
        for name in OPERATIONS:
            pairs = zip(seconds["host_", name], seconds["", name], strict=True)
            measured[f"{name}_times_host"] = round(statistics.geometric_mean(host / own for host, own in pairs), 3)
    return measured


def examine(settings: TrainSettings) -> dict[str, Any]:
    """Place a run and write its receipt without training. Call this in a child process."""
    placement = place(settings)
    # The precision of a model with depthwise convolutions may differ, but the model may be unknown.
    precision = choose_precision(settings.precision, placement)
    return {"receipt": write_receipt(settings, placement, precision), "precision": precision}


def require_device(settings: TrainSettings) -> None:
    """Raise a HardwareMismatchError if the requested device is unavailable. Call this in a child process."""
    place(settings)


@message
def verdict(receipt: Mapping) -> str:
    """State whether the device is verified, with the failed checks."""
    return "verified" if receipt["device_verified"] else f"NOT verified ({', '.join(receipt['failed_checks'])})"


def with_processes(receipt: Receipt, gather: Callable[[dict], list[dict]]) -> Receipt:
    """Add the devices of all processes of a group. The result is verified if each process verified its device."""
    process = {name: receipt[name] for name in ("device_name", "failed_checks")}
    process |= {"hostname": socket.gethostname(), "devices": receipt["logical_devices"]}
    return _checked({**receipt, "processes": gather(process)})


def confirm(receipt: Receipt, train_devices: Sequence[str]) -> Receipt:
    """Replace the probe's devices by those of the run's train function. Without the latter, nothing changes."""
    if not train_devices:
        return receipt
    observed = {**receipt["placement"], "computation_devices": list(train_devices), "observed": "train_function"}
    confirmed = _checked({**receipt, "placement": observed})
    if confirmed["failed_checks"] and receipt["device_verified"]:
        failed_checks = ", ".join(confirmed["failed_checks"])
        _logger.warning("NOT verified. The train function ran on other devices than the probe: %s", failed_checks)
    return confirmed


def _checked(receipt: Receipt) -> Receipt:
    """Add the failed checks to the receipt."""
    names = ("effective_device", "num_replicas", "placement", "probe")
    failed_checks = find_failed_checks(*(receipt[name] for name in names))
    for rank, process in enumerate(receipt["processes"]):
        failed_checks += [f"process {rank}: {failed_check}" for failed_check in process["failed_checks"]]
    return {**receipt, "device_verified": not failed_checks, "failed_checks": failed_checks}


def find_failed_checks(effective: str, num_replicas: int, placement: Mapping, speeds: Mapping) -> list[str]:
    """Failed checks of the effective device. Empty if it is verified."""
    failed_checks = []
    for name in ("variable_devices", "computation_devices"):
        kinds = {_kind(device) for device in placement[name]}
        if kinds != {effective}:
            failed_checks.append(_wrong_devices(name, effective, ", ".join(sorted(kinds))))
        elif len(set(placement[name])) != num_replicas:
            failed_checks.append(_wrong_devices(name, f"{num_replicas} devices", len(set(placement[name]))))
    if effective != "cpu":
        ratio = statistics.geometric_mean(speeds[f"{operation}_times_host"] for operation in OPERATIONS)
        if 1 / _AS_FAST_AS_HOST < ratio < _AS_FAST_AS_HOST:
            failed_checks.append(_as_fast_as_host(effective, ratio))
    return failed_checks


def _seconds(compute: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, because other load only adds time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest


def _kind(device: str) -> str:
    """Kind in a device name. "/job:localhost/replica:0/task:0/device:GPU:0" and "gpu:0" are both "gpu"."""
    match = re.search(r"(\w+):\d+$", device)
    return match[1].lower() if match else "none"


@message
def _wrong_devices(name: str, expected: str, observed: str | int) -> str:
    return f"{name}: expected {expected}, seen {observed}"


@message
def _as_fast_as_host(effective: str, ratio: float) -> str:
    return f"probe: {effective} computes {ratio:.2f} times as fast as its host's CPU and may be that CPU"
