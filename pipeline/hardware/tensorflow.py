"""TensorFlow's runtime: a requested device becomes a tf.distribute strategy, or the reason why not.

``replicas`` splits the CPU into logical devices under MirroredStrategy, so that replicated training is the real thing
on any machine.
"""

import contextlib
import os
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf

# TensorFlow's only way to what an eagerly called function ran; its own tests use it.
from tensorflow.python.eager import context

from pipeline import machine
from pipeline.config.refusal import refuse
from pipeline.config.training import TENSORFLOW, TPU_ADDRESS, TrainSettings, names_tpu, refuse_replicas
from pipeline.errors import HardwareMismatchError, SettingsError
from pipeline.hardware import words
from pipeline.hardware.mismatch import explain, is_known
from pipeline.hardware.probe import CHANNELS_IN, CHANNELS_OUT, IMAGES, KERNEL, SIZE
from pipeline.hardware.runtime import TF32, dtype_of

# TensorFlow itself waits for an address that does not answer without end.
CONNECT_TIMEOUT_SECONDS = 10
_TPU_PORT = 8470
# Parts of the names of the operations that do the model's work, whatever library they were rewritten for.
_COMPUTING = ("Conv2D", "MatMul", "XlaLaunch", "XlaRun", "TPUExecute")
# oneDNN multiplies bfloat16 natively where the processor has one of these.
_BFLOAT16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_FIRST_GPU_CAPABILITY_WITH_BFLOAT16 = (8, 0)


class TensorFlow:
    """See runtime.Runtime."""

    backend = TENSORFLOW

    def first_present(self) -> tuple[str, str]:
        """By the environment, the PCI bus and TensorFlow's own list."""
        # A TPU host announces itself by these; asking the resolver without them only waits for a metadata server.
        if name := os.environ.get("TPU_NAME"):
            return "tpu", words.auto_tpu(name=name)
        if chips := machine.tpu_chips():
            return "tpu", words.auto_tpu(chips=chips)
        gpus = tf.config.list_physical_devices("GPU")
        return "gpu" if gpus else "cpu", words.auto_without_tpu(len(gpus), "TensorFlow")

    def make_deterministic(self) -> None:
        """By TensorFlow's own switch: an operation that has no deterministic kernel fails, and says so."""
        tf.config.experimental.enable_op_determinism()

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        """A tf.distribute strategy; of a TPU also what its resolver and its topology say."""
        found = _STRATEGIES[device](settings)
        return {**found, "num_replicas": found["strategy"].num_replicas_in_sync}

    def failed_in_use(self, error: Exception) -> bool:
        """What TensorFlow's operations raise."""
        return isinstance(error, tf.errors.OpError)

    def strategy_name(self, strategy: tf.distribute.Strategy) -> str:
        """As TensorFlow calls it."""
        return type(strategy).__name__

    def scope(self, strategy: tf.distribute.Strategy) -> AbstractContextManager:
        """The strategy's."""
        return strategy.scope()

    def evaluating(self, strategy: tf.distribute.Strategy) -> AbstractContextManager:
        """A strategy takes batches of any size."""
        return contextlib.nullcontext()

    def observe(self, strategy: tf.distribute.Strategy) -> dict[str, list[str] | str]:
        """Devices of a variable's copies, and those a traced convolution and matrix product ran on, one a replica.

        Where TensorFlow does not list what it ran (a TPU runs one compiled program) the results' devices stand for it.
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

    def observe_training(self, model: Any) -> list[str]:
        """The devices that the first call of a compiled Keras model's train function computes on, one a replica.

        The list fills when that call, the first of the coming ``fit``, is done; it stays empty where TensorFlow does
        not list what it ran. Nothing is called that training would not call anyway: the weights are the same, bit for
        bit.
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

    def computations(self, device: str, side: int, precision: str) -> dict[str, Callable[[], object]]:
        """A matrix product and a convolution; the sum of each keeps the way back short and the work whole."""
        dtype = tf.as_dtype(dtype_of(precision))
        with tf.device(f"/{device}:0"):
            matrix = tf.cast(tf.random.stateless_normal([side, side], [0, 0]), dtype)
            images = tf.cast(tf.random.stateless_normal([IMAGES, SIZE, SIZE, CHANNELS_IN], [0, 1]), dtype)
            kernel = tf.cast(tf.random.stateless_normal([KERNEL, KERNEL, CHANNELS_IN, CHANNELS_OUT], [0, 2]), dtype)

        # Each in its own device's scope.
        @tf.function
        def multiply() -> tf.Tensor:
            with tf.device(f"/{device}:0"):
                return tf.reduce_sum(tf.cast(tf.linalg.matmul(matrix, matrix), tf.float32))

        @tf.function
        def convolve() -> tf.Tensor:
            with tf.device(f"/{device}:0"):
                return tf.reduce_sum(tf.cast(tf.nn.conv2d(images, kernel, 1, "SAME"), tf.float32))

        # Reading a result back waits for the device.
        return {"matmul": lambda: multiply().numpy(), "convolution": lambda: convolve().numpy()}

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        """The function that fit calls, without what fit does around it."""
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = tf.data.Dataset.from_tensors(batch).repeat(steps).with_options(options)
        batches = model.distribute_strategy.experimental_distribute_dataset(dataset)

        def timed() -> float:
            iterator = iter(batches)
            started = time.perf_counter()
            # A step is done when its figures can be read.
            float(model.train_function(iterator)["loss"])
            return time.perf_counter() - started

        return timed

    def step_flops(self, model: Any, batch: Any) -> float | None:
        """By TensorFlow's own count of the graph's operations, on one replica; without loops, which it counts once."""
        if model.distribute_strategy.num_replicas_in_sync > 1:
            return None
        spec = tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), batch)
        graph = tf.function(model.train_step).get_concrete_function(spec).graph
        if any("While" in operation.type for operation in graph.get_operations()):
            return None
        options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
        # It warns that it comes from TensorFlow 1, where it is the only count there is.
        level = tf.get_logger().level
        tf.get_logger().setLevel("ERROR")
        try:
            counted = tf.compat.v1.profiler.profile(graph, options={**options, "output": "none"})
        finally:
            tf.get_logger().setLevel(level)
        return float(counted.total_float_ops) or None

    def step_bytes(self, model: Any, batch: Any) -> None:
        """TensorFlow counts none: what is fused is not known of a graph."""

    def logical_devices(self) -> list[str]:
        """As TensorFlow names them."""
        return [device.name for device in tf.config.list_logical_devices()]

    def physical_devices(self) -> list[dict]:
        """Of a GPU also its compute capability and driver."""
        return [_describe(device) for device in tf.config.list_physical_devices()]

    def versions(self) -> dict[str, str | None]:
        """Of TensorFlow and what it was built for."""
        build = tf.sysconfig.get_build_info()
        return {
            "tensorflow": tf.__version__,
            # XLA and oneDNN are built into TensorFlow: its commit is their version.
            "tensorflow_commit": tf.version.GIT_VERSION,
            "built_for_cuda": build.get("cuda_version"),
            "built_for_cudnn": build.get("cudnn_version"),
        }

    def threads(self) -> dict[str, int]:
        """Of TensorFlow's two pools."""
        return {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        }

    def set_matmul_precision(self, precision: str) -> None:
        """By TensorFlow's own switch, which is on where nobody turns it."""
        tf.config.experimental.enable_tensor_float_32_execution(precision == TF32)

    def matmul_precision(self) -> str:
        """By the same switch."""
        return TF32 if tf.config.experimental.tensor_float_32_execution_enabled() else "highest"

    def computes_in_bfloat16(self, device: str) -> bool:
        """On a CPU by its instruction sets, and by oneDNN: without it the same processor is slower than in float32."""
        if device == "cpu":
            return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0" and bool(
                _BFLOAT16_CPU_FLAGS & machine.cpu_flags()
            )
        if device == "gpu":
            details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
            return all(one.get("compute_capability", (0, 0)) >= _FIRST_GPU_CAPABILITY_WITH_BFLOAT16 for one in details)
        return True

    def compiles(self, device: str) -> bool:
        """Not on a CPU, where XLA made the baseline CNN four times slower."""
        return device in ("gpu", "tpu")

    def reset_peak_memory(self) -> None:
        """Of the GPUs."""
        for gpu in tf.config.list_logical_devices("GPU"):
            tf.config.experimental.reset_memory_stats(gpu.name.removeprefix("/device:"))

    def peak_device_bytes(self, device: str) -> int | None:
        """Of the first GPU."""
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"]) if device == "gpu" else None

    def profile(self, folder: Path) -> AbstractContextManager:
        """TensorFlow's profiler."""
        return tf.profiler.experimental.Profile(str(folder))


RUNTIME = TensorFlow()


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


def _describe(device: tf.config.PhysicalDevice) -> dict:
    details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
    description = {"type": device.device_type.lower(), "name": details.get("device_name", device.name)}
    if "compute_capability" in details:
        description["compute_capability"] = ".".join(map(str, details["compute_capability"]))
        description["driver"] = machine.nvidia_driver()
    return description


def split_cpu(replicas: int) -> None:
    """Lay out ``replicas`` logical CPU devices, before TensorFlow first computes: it holds for the process.

    Raises:
        SettingsError: TensorFlow has computed already, on another layout.
    """
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        except RuntimeError:
            if len(tf.config.list_logical_devices("CPU")) < replicas:
                refuse("Train", "replicas", "the number this process began with; run again", replicas)


@contextlib.contextmanager
def _asking(device: str) -> Iterator[None]:
    """Around calls of the runtime and the resolver alone: what they raise where the device is unavailable.

    Anything else is a bug, or a failure of another kind, and says nothing about the device.

    Raises:
        HardwareMismatchError: it is unavailable; holds the Mismatch.
    """
    try:
        yield
    except (ImportError, ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        if not is_known(device, error) and not isinstance(error, tf.errors.OpError):
            raise
        mismatch = explain(device, error)
        raise HardwareMismatchError(str(mismatch), mismatch.to_json()) from error


def _on_cpu(settings: TrainSettings) -> dict:
    if settings.replicas > 1:
        split_cpu(settings.replicas)
        return {"strategy": tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(settings.replicas)])}
    if not tf.config.list_logical_devices("GPU"):
        # The device TensorFlow takes by itself; a strategy of our own would copy every batch once more.
        return {"strategy": tf.distribute.get_strategy()}
    return {"strategy": tf.distribute.OneDeviceStrategy("/cpu:0")}


def _on_gpu(settings: TrainSettings) -> dict:
    refuse_replicas(settings.replicas, "gpu")
    with _asking("gpu"):
        gpus = tf.config.list_logical_devices("GPU")
        if not gpus:
            if not tf.test.is_built_with_cuda():
                raise RuntimeError("TensorFlow is built without CUDA")
            raise RuntimeError("TensorFlow sees none" if machine.has_gpu_driver() else "no driver")
        if len(gpus) == 1:
            return {"strategy": tf.distribute.OneDeviceStrategy("/gpu:0")}
        return {"strategy": tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])}


def _on_tpu(settings: TrainSettings) -> dict:
    refuse_replicas(settings.replicas, "tpu")
    address = _tpu_address(settings)
    with _asking("tpu"):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            address, zone=settings.tpu_zone or None, project=settings.tpu_project or None
        )
        master = resolver.master()
    if settings.tpu_address != "local":
        host, port = _host_and_port(master)
        with _asking("tpu"):
            _require_answer(master, host, port)
            tf.config.experimental_connect_to_cluster(resolver)
    with _asking("tpu"):
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        if not tf.config.list_logical_devices("TPU"):
            # A resolver for "local" answers on any machine.
            raise RuntimeError("the topology holds no TPU")
        strategy = tf.distribute.TPUStrategy(resolver)
    return {
        "strategy": strategy,
        "resolver": {"master": master, "cluster": _cluster(resolver)},
        "topology": {
            "mesh_shape": [int(size) for size in topology.mesh_shape],
            "num_tasks": int(topology.num_tasks),
            "num_tpus_per_task": int(topology.num_tpus_per_task),
        },
    }


def _tpu_address(settings: TrainSettings) -> str | None:
    """``tpu_address``, TPU_NAME, or this very host where it has TPUs.

    Raises:
        SettingsError: TPU_NAME can be no TPU's.
    """
    if settings.tpu_address:
        return settings.tpu_address
    name = os.environ.get("TPU_NAME")
    if name and not names_tpu(name):
        raise SettingsError(f"environment variable TPU_NAME: expected {TPU_ADDRESS}, got {name!r}.")
    return name or ("local" if machine.tpu_chips() else None)


def _host_and_port(master: str) -> tuple[str | None, int]:
    parts = urllib.parse.urlsplit(master if "://" in master else f"grpc://{master}")
    return parts.hostname, parts.port or _TPU_PORT


def _require_answer(master: str, host: str | None, port: int) -> None:
    if host:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            raise ConnectionError(f"{master} is unreachable ({error})") from error


def _cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> dict:
    cluster = resolver.cluster_spec()
    return {job: list(cluster.job_tasks(job)) for job in cluster.jobs} if cluster else {}


_STRATEGIES: dict[str, Callable[[TrainSettings], dict]] = {"cpu": _on_cpu, "gpu": _on_gpu, "tpu": _on_tpu}
