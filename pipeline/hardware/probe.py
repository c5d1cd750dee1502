"""Probe: where a variable lives, where a computation of the model's own kind runs, and how fast the device computes.

Names of devices can be wrong in good faith; time is hard to fake. An accelerator that is exactly as fast as its host's
CPU in everything may well be that CPU.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# TensorFlow's only way to what an eagerly called function ran; its own tests use it.
from tensorflow.python.eager import context

# Each operation is timed in so many turns of so long: long against a call's overhead, short for the user.
_ROUNDS, _SECONDS = 4, 0.04
# Side of the matrices: large enough for the device's speed to show, 2 GFLOP on a CPU and 137 on an accelerator.
_SIDE, _SIDE_ON_ACCELERATOR = 1_024, 4_096
#: What is timed.
OPERATIONS = ("matmul", "convolution")
# Parts of the names of the operations that do the model's work, whatever library they were rewritten for.
_COMPUTING = ("Conv2D", "MatMul", "XlaLaunch", "XlaRun", "TPUExecute")
_IMAGES, _SIZE, _CHANNELS_IN, _CHANNELS_OUT, _KERNEL = 64, 32, 32, 64, 3
_CONVOLUTION_FLOP = 2 * _IMAGES * _SIZE**2 * _KERNEL**2 * _CHANNELS_IN * _CHANNELS_OUT


def observe(strategy: tf.distribute.Strategy) -> dict[str, list[str] | str]:
    """Devices of a variable's copies, and those a traced convolution and matrix product ran on, one a replica.

    Where the runtime does not list what it ran (a TPU runs one compiled program) the results' devices stand for it.
    ``observed`` is "probe": that these operations ran there says nothing yet of the model's.
    """
    with strategy.scope():
        kernel = tf.Variable(tf.ones([2, 2, 3, 8]))

    def compute() -> tf.Tensor:
        convolved = tf.nn.conv2d(tf.ones([8, 8, 8, 3]), kernel, strides=1, padding="SAME")
        return tf.linalg.matmul(tf.reshape(convolved, [8, -1]), tf.ones([8 * 8 * 8, 10]))

    @tf.function
    def traced() -> tf.Tensor:
        return strategy.run(compute)

    # Results tell less than the list of what ran: those of a second logical CPU are handed back on the first.
    with _listing() as ran:
        results = strategy.experimental_local_results(traced())
    return {
        "variable_devices": [variable.device for variable in strategy.experimental_local_results(kernel)],
        "computation_devices": ran or [result.device for result in results],
        "observed": "probe",
    }


def observe_training(model: Any) -> list[str]:
    """The devices that the first call of a compiled Keras model's train function computes on, one a replica.

    The list fills when that call, the first of the coming ``fit``, is done; it stays empty where the runtime does not
    list what it ran. Nothing is called that training would not call anyway: the weights are the same, bit for bit.
    """
    devices: list[str] = []
    model.make_train_function()
    train_function = model.train_function

    def observed(iterator: object) -> object:
        # Keras looks the function up for each call.
        model.train_function = train_function
        with _listing() as ran:
            outputs = train_function(iterator)
        devices.extend(ran)
        return outputs

    model.train_function = observed
    return devices


@contextlib.contextmanager
def _listing() -> Iterator[list[str]]:
    """The devices of the computing operations that functions called in the block really ran, after all rewriting."""
    devices: list[str] = []
    context.enable_run_metadata()
    try:
        yield devices
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    devices += sorted({node.device for graph in graphs for node in graph.node if _computes(node)})


def _computes(node: Any) -> bool:
    # XLA compiles a whole function: what shows is the one operation that calls it.
    return any(kind in node.op for kind in _COMPUTING) or node.attr["_XlaMustCompile"].b


def measure(device: str, precision: str) -> dict[str, int | str]:
    """Floating-point operations per second of a matrix product and a convolution on "cpu", "gpu" or "tpu".

    An accelerator's host is timed on the same, interleaved, as ``host_…``: other work on the machine then slows both.
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
