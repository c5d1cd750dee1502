"""Probe: where a variable lives, where a computation of the model's own kind runs, and how fast the device computes.

Names of devices can be wrong in good faith; time is hard to fake. An accelerator that multiplies no faster than its
host's CPU is not computing.
"""

import time
from collections.abc import Callable

import tensorflow as tf

# TensorFlow's only way to what an eagerly called function ran; its own tests use it.
from tensorflow.python.eager import context

# Each operation is timed in so many turns of so long: long against a call's overhead, short for the user.
_ROUNDS, _SECONDS = 4, 0.04
# Side of the matrices: large enough for the device's speed to show, 2 GFLOP on a CPU and 137 on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
# Parts of the names of the operations that do the model's work, whatever library they were rewritten for.
_COMPUTING = ("Conv2D", "MatMul")
_IMAGES, _SIZE, _CHANNELS_IN, _CHANNELS_OUT, _KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * _IMAGES * _SIZE**2 * _KERNEL**2 * _CHANNELS_IN * _CHANNELS_OUT


def observe(strategy: tf.distribute.Strategy) -> dict[str, list[str]]:
    """Devices of a variable's copies, and those a traced convolution and matrix product ran on, one a replica.

    Where the runtime does not list what it ran (a TPU runs one compiled program) the results' devices stand for it.
    """
    with strategy.scope():
        kernel = tf.Variable(tf.ones([2, 2, 3, 8]))

    def compute() -> tf.Tensor:
        convolved = tf.nn.conv2d(tf.ones([8, 8, 8, 3]), kernel, strides=1, padding="SAME")
        return tf.linalg.matmul(tf.reshape(convolved, [8, -1]), tf.ones([8 * 8 * 8, 10]))

    @tf.function
    def traced() -> tf.Tensor:
        return strategy.run(compute)

    # What was really run, after all rewriting, with the device of each operation. Results tell less: those of a second
    # logical CPU are handed back on the first.
    context.enable_run_metadata()
    try:
        results = strategy.experimental_local_results(traced())
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    ran = {node.device for graph in graphs for node in graph.node if any(kind in node.op for kind in _COMPUTING)}
    return {
        "variable_devices": [variable.device for variable in strategy.experimental_local_results(kernel)],
        "computation_devices": sorted(ran) or [result.device for result in results],
    }


def measure(device: str, precision: str) -> dict[str, int | str]:
    """Floating-point operations per second of a matrix product and a convolution on "cpu", "gpu" or "tpu".

    An accelerator's host is timed on the same, by turns, as ``host_…``: other work on the machine then slows both.
    """
    side = _SIDE if device == "cpu" else _SIDE_ON_ACCELERATOR
    flop = {"matmul": 2 * side**3, "convolution": _CONVOLUTION_FLOP}
    devices = {"": device} if device == "cpu" else {"": device, "host_": "cpu"}
    computations = {
        (prefix, name): compute
        for prefix, where in devices.items()
        for name, compute in _computations(where, side, tf.as_dtype(precision)).items()
    }
    for compute in computations.values():
        # Traces. Reading a result back waits for the device.
        compute().numpy()
    fastest = dict.fromkeys(computations, float("inf"))
    for _ in range(_ROUNDS):
        for key, compute in computations.items():
            fastest[key] = min(fastest[key], _seconds(compute))
    speeds = {
        f"{prefix}{name}_flops_per_second": round(flop[name] / seconds) for (prefix, name), seconds in fastest.items()
    }
    return {"precision": precision, **speeds}


def _computations(device: str, side: int, dtype: tf.DType) -> dict[str, Callable[[], tf.Tensor]]:
    with tf.device(f"/{device}:0"):
        matrix = tf.cast(tf.random.stateless_normal([side, side], [0, 0]), dtype)
        images = tf.cast(tf.random.stateless_normal([_IMAGES, _SIZE, _SIZE, _CHANNELS_IN], [0, 1]), dtype)
        kernel = tf.cast(tf.random.stateless_normal([_KERNEL, _KERNEL, _CHANNELS_IN, _CHANNELS_OUT], [0, 2]), dtype)

    # Each in its own device's scope; the sum keeps the way back short and the work whole.
    @tf.function
    def multiply() -> tf.Tensor:
        with tf.device(f"/{device}:0"):
            return tf.reduce_sum(tf.cast(tf.linalg.matmul(matrix, matrix), tf.float32))

    @tf.function
    def convolve() -> tf.Tensor:
        with tf.device(f"/{device}:0"):
            return tf.reduce_sum(tf.cast(tf.nn.conv2d(images, kernel, 1, "SAME"), tf.float32))

    return {"matmul": multiply, "convolution": convolve}


def _seconds(compute: Callable[[], tf.Tensor]) -> float:
    """The fastest call of a few: on a shared machine others only ever add time."""
    fastest, until = float("inf"), time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < until:
        compute().numpy()
        fastest = min(fastest, time.perf_counter() - started)
    return fastest
