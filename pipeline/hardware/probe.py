"""Probe: how fast a device computes what networks are made of.

Names of devices can be wrong in good faith; time is hard to fake. An accelerator that is exactly as fast as its host's
CPU in everything may well be that CPU.
"""

import time
from collections.abc import Callable

from pipeline.hardware.runtime import Runtime

# Each operation is timed in so many turns of so long: long against a call's overhead, short for the user.
_ROUNDS, _SECONDS = 4, 0.04
# Side of the matrices: large enough for the device's speed to show, 2 GFLOP on a CPU and 137 on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
#: What is timed.
OPERATIONS = ("matmul", "convolution")
#: The convolution: images of size × size, kernels of kernel × kernel.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * IMAGES * SIZE**2 * KERNEL**2 * CHANNELS_IN * CHANNELS_OUT


def measure(runtime: Runtime, device: str, precision: str) -> dict[str, int | str]:
    """Floating-point operations per second of a matrix product and a convolution on "cpu", "gpu" or "tpu".

    An accelerator's host is timed on the same, interleaved, as ``host_…``: other work on the machine then slows both.
    """
    side = _SIDE if device == "cpu" else _SIDE_ON_ACCELERATOR
    flop = {"matmul": 2 * side**3, "convolution": _CONVOLUTION_FLOP}
    devices = {"": device} if device == "cpu" else {"": device, "host_": "cpu"}
    computations = {
        (prefix, name): compute
        for prefix, where in devices.items()
        for name, compute in runtime.computations(where, side, precision).items()
    }
    for compute in computations.values():
        # Compiles.
        compute()
    fastest = dict.fromkeys(computations, float("inf"))
    for _ in range(_ROUNDS):
        for key, compute in computations.items():
            fastest[key] = min(fastest[key], _seconds(compute))
    speeds = {
        f"{prefix}{name}_flops_per_second": round(flop[name] / seconds) for (prefix, name), seconds in fastest.items()
    }
    return {"precision": precision, **speeds}


def _seconds(compute: Callable[[], object]) -> float:
    """The fastest call of a few: on a shared machine others only ever add time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
