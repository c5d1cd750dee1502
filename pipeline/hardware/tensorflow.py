"""TensorFlow runtime, with a ``tf.distribute`` strategy per device.

``replicas`` splits the CPU into logical devices under MirroredStrategy, so that any machine can train replicas.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf

# No public function lists the operations of an eager call. TensorFlow's tests use this module.
from tensorflow.python.eager import context

from pipeline import machine
from pipeline.hardware.runtime import CHANNELS_IN, CHANNELS_OUT, IMAGES, KERNEL, SIZE, TF32, Runtime, explain
from pipeline.settings.training import TENSORFLOW, TrainSettings

# Parts of the names of a model's main operations, in every library.
_COMPUTING = ("Conv2D", "MatMul", "XlaLaunch", "XlaRun")


class TensorFlow(Runtime):
    """See runtime.Runtime."""

    backend = TENSORFLOW

    def num_gpus(self) -> int:
        return len(tf.config.list_physical_devices("GPU"))

    def make_deterministic(self) -> None:
        tf.config.experimental.enable_op_determinism()

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        if device == "tpu":
            # JAX alone supports TPUs.
            cause = "TensorFlow has no TPU support" if machine.tpu_chips() else "no TPU devices"
            raise explain("tpu", RuntimeError(cause))
        strategy = _on_cpu(settings.replicas) if device == "cpu" else _on_gpu()
        return {"strategy": strategy, "num_replicas": strategy.num_replicas_in_sync}

    def scope(self, strategy: tf.distribute.Strategy) -> AbstractContextManager:
        return strategy.scope()

    def observe(self, strategy: tf.distribute.Strategy) -> dict[str, list[str] | str]:
        with strategy.scope():
            kernel = tf.Variable(tf.ones([2, 2, 3, 8]))

        def compute() -> tf.Tensor:
            convolved = tf.nn.conv2d(tf.ones([8, 8, 8, 3]), kernel, strides=1, padding="SAME")
            return tf.linalg.matmul(tf.reshape(convolved, [8, -1]), tf.ones([8 * 8 * 8, 10]))

        @tf.function
        def traced() -> tf.Tensor:
            return strategy.run(compute)

        # Devices of the results are less reliable, because a second logical CPU returns them on the first.
        with _recorded_devices() as devices:
            traced()
        return {
            "variable_devices": [variable.device for variable in strategy.experimental_local_results(kernel)],
            "computation_devices": devices,
        }

    def observe_training(self, model: Any) -> Callable[[], list[str]]:
        devices: list[str] = []
        model.make_train_function()
        train_function = model.train_function

        def observed(iterator: object) -> object:
            # Keras looks up the function at each call, so only the first call is observed.
            model.train_function = train_function
            with _recorded_devices() as recorded:
                outputs = train_function(iterator)
            devices.extend(recorded)
            return outputs

        model.train_function = observed
        return lambda: devices

    def computations(self, device: str, side: int, dtype: str) -> dict[str, Callable[[], object]]:
        with tf.device(f"/{device}:0"):
            matrix = tf.cast(tf.random.stateless_normal([side, side], [0, 0]), dtype)
            images = tf.cast(tf.random.stateless_normal([IMAGES, SIZE, SIZE, CHANNELS_IN], [0, 1]), dtype)
            kernel = tf.cast(tf.random.stateless_normal([KERNEL, KERNEL, CHANNELS_IN, CHANNELS_OUT], [0, 2]), dtype)

        def timed(compute: Callable[[], tf.Tensor]) -> Callable[[], object]:
            @tf.function
            def summed() -> tf.Tensor:
                with tf.device(f"/{device}:0"):
                    # The sum keeps the transfer short.
                    return tf.reduce_sum(tf.cast(compute(), tf.float32))

            # Reading the result waits for the device.
            return lambda: summed().numpy()

        return {
            "matmul": timed(lambda: tf.linalg.matmul(matrix, matrix)),
            "convolution": timed(lambda: tf.nn.conv2d(images, kernel, 1, "SAME")),
        }

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = tf.data.Dataset.from_tensors(batch).repeat(steps).with_options(options)
        batches = model.distribute_strategy.experimental_distribute_dataset(dataset)

        def timed() -> float:
            iterator = iter(batches)
            started = time.perf_counter()
            # Reading the loss waits for the step.
            float(model.train_function(iterator)["loss"])
            return time.perf_counter() - started

        return timed

    def step_flops(self, model: Any, batch: Any) -> float | None:
        if model.distribute_strategy.num_replicas_in_sync > 1:
            return None
        spec = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), batch)
        graph = tf.function(model.train_step).get_concrete_function(spec).graph
        # TensorFlow would count the operations of a loop only once.
        if any("While" in operation.type for operation in graph.get_operations()):
            return None
        options = {**tf.compat.v1.profiler.ProfileOptionBuilder.float_operation(), "output": "none"}
        return float(tf.compat.v1.profiler.profile(graph, options=options).total_float_ops) or None

    def describe(self, strategy: tf.distribute.Strategy) -> dict[str, Any]:
        build, threading = tf.sysconfig.get_build_info(), tf.config.threading
        is_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        return {
            "strategy": type(strategy).__name__,
            "logical_devices": [device.name for device in tf.config.list_logical_devices()],
            "physical_devices": [_describe(device) for device in tf.config.list_physical_devices()],
            "versions": {
                "tensorflow": tf.__version__,
                # The commit implies the versions of XLA and oneDNN.
                "tensorflow_commit": tf.version.GIT_VERSION,
                "built_for_cuda": build.get("cuda_version"),
                "built_for_cudnn": build.get("cudnn_version"),
            },
            "matmul_precision": TF32 if is_tf32 else "highest",
            "threads": {
                "inter_op": threading.get_inter_op_parallelism_threads(),
                "intra_op": threading.get_intra_op_parallelism_threads(),
            },
        }

    def set_matmul_precision(self, precision: str) -> None:
        tf.config.experimental.enable_tensor_float_32_execution(precision == TF32)

    def reset_peak_memory(self) -> None:
        for gpu in tf.config.list_logical_devices("GPU"):
            tf.config.experimental.reset_memory_stats(gpu.name.removeprefix("/device:"))

    def peak_device_bytes(self, device: str) -> int | None:
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if device == "gpu" else None

    def profile(self, folder: Path) -> AbstractContextManager:
        return tf.profiler.experimental.Profile(str(folder))


RUNTIME = TensorFlow()


@contextlib.contextmanager
def _recorded_devices() -> Iterator[list[str]]:
    """Context that records the devices of the main operations, after TensorFlow's graph rewriting."""
    devices: list[str] = []
    context.enable_run_metadata()
    try:
        yield devices
        graphs = context.export_run_metadata().partition_graphs
    finally:
        context.disable_run_metadata()
    devices += sorted({node.device for graph in graphs for node in graph.node if _computes(node)})


def _computes(node: Any) -> bool:
    # A function that XLA compiles is a single operation.
    return any(kind in node.op for kind in _COMPUTING) or node.attr["_XlaMustCompile"].b


def _describe(device: tf.config.PhysicalDevice) -> dict:
    details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
    description = {"type": device.device_type.lower(), "name": details.get("device_name", device.name)}
    if "compute_capability" in details:
        description["compute_capability"] = ".".join(map(str, details["compute_capability"]))
        description["driver"] = machine.nvidia_driver()
    return description


def _on_cpu(replicas: int) -> tf.distribute.Strategy:
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        # The number of devices is fixed after the first computation of a process.
        with contextlib.suppress(RuntimeError):
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
    if not tf.config.list_logical_devices("GPU"):
        # Another strategy than the default would copy every batch once more.
        return tf.distribute.get_strategy()
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def _on_gpu() -> tf.distribute.Strategy:
    try:
        gpus = tf.config.list_logical_devices("GPU")
    except tf.errors.OpError as error:
        raise explain("gpu", error) from error
    if not gpus:
        cause = "TensorFlow sees none" if machine.has_gpu_driver() else "no driver"
        raise explain("gpu", RuntimeError(cause if tf.test.is_built_with_cuda() else "built without CUDA"))
    if len(gpus) == 1:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])
