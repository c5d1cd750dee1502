"""Probe: how fast a device computes what networks are made of.

Names of devices can be wrong in good faith; time is hard to fake. An accelerator that is exactly as fast as its host's
CPU in everything may well be that CPU.
"""

import time
from collections.abc import Callable
from statistics import geometric_mean

from pipeline.hardware.runtime import Runtime

# Each operation is timed in so many turns of so long: long against a call's overhead, short for the user. More of them
# where two devices are compared: other work on the machine is to fall on both.
_ROUNDS, _ROUNDS_BESIDE_HOST, _SECONDS = 4, 8, 0.04
# Side of the matrices: large enough for the device's speed to show, 2 GFLOP on a CPU and 137 on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
#: What is timed.
OPERATIONS = ("matmul", "convolution")
#: The convolution: images of size × size, kernels of kernel × kernel.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * IMAGES * SIZE**2 * KERNEL**2 * CHANNELS_IN * CHANNELS_OUT


def measure(runtime: Runtime, device: str, precision: str) -> dict[str, float | int | str]:
    """Floating-point operations per second of a matrix product and a convolution on "cpu", "gpu" or "tpu".

    An accelerator's host is timed on the same, as ``host_…``, and ``…_times_host`` says how many times as fast the
    accelerator is: the geometric mean over turns taken one straight after the other. Other work on the machine comes
    and goes, and the fastest turn of each would be one with it here and one without it there.
    """
    side = _SIDE if device == "cpu" else _SIDE_ON_ACCELERATOR
    flop = {"matmul": 2 * side**3, "convolution": _CONVOLUTION_FLOP}
    devices = {"": device} if device == "cpu" else {"": device, "host_": "cpu"}
    computations = {prefix: runtime.computations(where, side, precision) for prefix, where in devices.items()}
    for of_device in computations.values():
        for compute in of_device.values():
            # Compiles.
            compute()
    seconds = {(prefix, name): [] for prefix in devices for name in OPERATIONS}
    for turn in range(_ROUNDS if device == "cpu" else _ROUNDS_BESIDE_HOST):
        for name in OPERATIONS:
            # Each is first as often as the other: what grows or fades meanwhile favours neither.
            for prefix in list(devices)[:: -1 if turn % 2 else 1]:
                seconds[prefix, name].append(_seconds(computations[prefix][name]))
    measured: dict[str, float | int | str] = {"precision": precision}
    for (prefix, name), turns in seconds.items():
        measured[f"{prefix}{name}_flops_per_second"] = round(flop[name] / min(turns))
    if device != "cpu":
        for name in OPERATIONS:
            pairs = zip(seconds["host_", name], seconds["", name], strict=True)
            measured[f"{name}_times_host"] = round(geometric_mean(host / own for host, own in pairs), 3)
    return measured


def _seconds(compute: Callable[[], object]) -> float:
    """The fastest call of a few: on a shared machine others only ever add time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
