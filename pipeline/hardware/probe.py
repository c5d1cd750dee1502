"""Benchmark of a device in the main operations of models.

Device names may be wrong. An accelerator that is exactly as fast as its host's CPU may be that CPU.
"""

import time
from collections.abc import Callable
from statistics import geometric_mean

from pipeline.hardware.runtime import TF32, Runtime

# Rounds per operation and seconds per round. More rounds average the load of the machine in a comparison of devices.
_ROUNDS, _ROUNDS_WITH_HOST, _SECONDS = 2, 8, 0.04
# Side of the matrices, for 2 GFLOP on a CPU and 137 GFLOP on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
#: The timed operations.
OPERATIONS = ("matmul", "convolution")
#: Shape of the convolution, with images of SIZE × SIZE and kernels of KERNEL × KERNEL.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * IMAGES * SIZE**2 * KERNEL**2 * CHANNELS_IN * CHANNELS_OUT


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
            measured[f"{name}_times_host"] = round(geometric_mean(host / accelerator for host, accelerator in pairs), 3)
    return measured


def _seconds(compute: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, because other load only adds time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
