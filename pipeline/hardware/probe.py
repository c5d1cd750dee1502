"""The speed of a device in the main operations of models.

Names of devices may be wrong. An accelerator that is exactly as fast as its host's CPU may be that CPU.
"""

import time
from collections.abc import Callable
from statistics import geometric_mean

from pipeline.hardware.runtime import TF32, Runtime

# Rounds per operation, and seconds per round. A comparison of two devices takes more, so that other work on the machine
# affects both.
_ROUNDS, _ROUNDS_BESIDE_HOST, _SECONDS = 4, 8, 0.04
# Side of the matrices: 2 GFLOP on a CPU and 137 on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
#: The timed operations.
OPERATIONS = ("matmul", "convolution")
#: The convolution: images of size × size, kernels of kernel × kernel.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * IMAGES * SIZE**2 * KERNEL**2 * CHANNELS_IN * CHANNELS_OUT


def measure(runtime: Runtime, device: str, precision: str) -> dict[str, float | int | str]:
    """Floating-point operations per second of a matrix product and a convolution on "cpu", "gpu" or "tpu".

    The host of an accelerator is timed too, as ``host_…``. ``…_times_host`` is the speed relative to the host: the
    geometric mean over interleaved rounds, so that other work on the machine affects both.
    """
    side = _SIDE if device == "cpu" else _SIDE_ON_ACCELERATOR
    flop = {"matmul": 2 * side**3, "convolution": _CONVOLUTION_FLOP}
    devices = {"": device} if device == "cpu" else {"": device, "host_": "cpu"}
    dtype = "float32" if precision == TF32 else precision
    computations = {prefix: runtime.computations(where, side, dtype) for prefix, where in devices.items()}
    for of_device in computations.values():
        for compute in of_device.values():
            # Compiles.
            compute()
    seconds = {(prefix, name): [] for prefix in devices for name in OPERATIONS}
    for turn in range(_ROUNDS if device == "cpu" else _ROUNDS_BESIDE_HOST):
        for name in OPERATIONS:
            # Each device is first equally often, so that a changing load favors neither.
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
    """The fastest of a few calls, because other work only adds time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
