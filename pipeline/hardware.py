"""Hardware: a requested device becomes a tf.distribute strategy, and what is known of it is written down.

Requested and effective are two things. A resolver that answers is no proof of a TPU, and a strategy that exists is no
proof of anything: ``verified`` is true only where a variable was seen to live on the effective device and a traced
computation of the model's own kind (a convolution and a matrix product) was seen to run there.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from pipeline.errors import HardwareMismatchError

# oneDNN multiplies bfloat16 natively where the processor has one of these.
_BFLOAT16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_FIRST_GPU_CAPABILITY_WITH_BFLOAT16 = (8, 0)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a run computes.

    ``effective_device`` is "cpu", "gpu" or "tpu"; ``evidence`` is plain JSON data: what was seen and where.
    """

    strategy: tf.distribute.Strategy
    requested_device: str
    effective_device: str
    device_verified: bool
    device_name: str
    evidence: dict

    @property
    def num_replicas(self) -> int:
        """Copies of the model that train in step."""
        return self.strategy.num_replicas_in_sync


def place(requested_device: str) -> Placement:
    """The strategy for "cpu", "gpu", "tpu", or for "auto" the first there is of TPU, GPU, CPU.

    Raises:
        HardwareMismatchError: the requested device is not there; says why and what to do.
    """
    effective = _first_present() if requested_device == "auto" else requested_device
    strategy = _STRATEGIES[effective]()
    evidence = _observe(strategy)
    seen = {_device_type(device) for device in (evidence["variable_device"], evidence["computation_device"])}
    return Placement(
        strategy=strategy,
        requested_device=requested_device,
        effective_device=effective,
        device_verified=seen == {effective},
        device_name=_device_name(effective),
        evidence=evidence,
    )


def choose_precision(requested: str, placement: Placement) -> str:
    """Either "float32" or "bfloat16"; "auto" takes bfloat16 where the hardware computes in it."""
    if requested != "auto":
        return requested
    return "bfloat16" if _BFLOAT16_RULES[placement.effective_device]() else "float32"


def choose_jit_compile(requested: str, placement: Placement) -> bool:
    """Whether to compile with XLA; "auto" does on GPU and TPU. On a CPU it made the CNN four times slower."""
    if requested != "auto":
        return requested == "true"
    return placement.effective_device in ("gpu", "tpu")


def _first_present() -> str:
    # A TPU host announces itself by these; asking the resolver without them only waits for a metadata server.
    if os.environ.get("TPU_NAME") or any(Path("/dev").glob("accel*")):
        return "tpu"
    return "gpu" if tf.config.list_physical_devices("GPU") else "cpu"


def _cpu_strategy() -> tf.distribute.Strategy:
    if not tf.config.list_logical_devices("GPU"):
        # The device TensorFlow takes by itself; a strategy of our own would copy every batch once more.
        return tf.distribute.get_strategy()
    return tf.distribute.OneDeviceStrategy("/cpu:0")


def _gpu_strategy() -> tf.distribute.Strategy:
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        raise HardwareMismatchError(
            "[Train] device: gpu was requested and TensorFlow sees none. Install the GPU build with "
            '"make setup EXTRA=gpu" and check that nvidia-smi lists the card, or choose --Train-device cpu.'
        )
    if len(gpus) == 1:
        return tf.distribute.OneDeviceStrategy("/gpu:0")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])


def _tpu_strategy() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(os.environ.get("TPU_NAME", "local"))
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        raise HardwareMismatchError(
            f"[Train] device: tpu was requested and none could be initialised ({type(error).__name__}: {error}). "
            "Run on a TPU host or set TPU_NAME, or choose --Train-device cpu."
        ) from error
    if not tf.config.list_logical_devices("TPU"):
        raise HardwareMismatchError(
            "[Train] device: tpu was requested; the resolver answered but the topology holds no TPU. "
            "Run on a TPU host, or choose --Train-device cpu."
        )
    return tf.distribute.TPUStrategy(resolver)


_STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "cpu": _cpu_strategy,
    "gpu": _gpu_strategy,
    "tpu": _tpu_strategy,
}


def _observe(strategy: tf.distribute.Strategy) -> dict:
    """Create a variable and run a small network's operations under the strategy, and note where both were."""
    with strategy.scope():
        kernel = tf.Variable(tf.ones([2, 2, 3, 8]))

    @tf.function
    def compute() -> tf.Tensor:
        convolved = tf.nn.conv2d(tf.ones([8, 8, 8, 3]), kernel, strides=1, padding="SAME")
        return tf.linalg.matmul(tf.reshape(convolved, [8, -1]), tf.ones([8 * 8 * 8, 10]))

    computed = strategy.experimental_local_results(strategy.run(compute))
    variables = strategy.experimental_local_results(kernel)
    return {
        "strategy": type(strategy).__name__,
        "logical_devices": [device.name for device in tf.config.list_logical_devices()],
        "variable_device": variables[0].device,
        "computation_device": computed[0].device,
    }


def _device_type(device: str) -> str:
    return (tf.DeviceSpec.from_string(device).device_type or "").lower()


def _cpu_computes_bfloat16() -> bool:
    # Without oneDNN the same processor is slower in bfloat16 than in float32.
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0" and bool(_BFLOAT16_CPU_FLAGS & _cpu_flags())


def _gpus_compute_bfloat16() -> bool:
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return all(d.get("compute_capability", (0, 0)) >= _FIRST_GPU_CAPABILITY_WITH_BFLOAT16 for d in details)


_BFLOAT16_RULES: dict[str, Callable[[], bool]] = {
    "cpu": _cpu_computes_bfloat16,
    "gpu": _gpus_compute_bfloat16,
    "tpu": lambda: True,
}


def _cpu_flags() -> set[str]:
    return set(_cpuinfo("flags").split())


def _cpuinfo(field: str) -> str:
    """First value of a field of Linux's /proc/cpuinfo, "" on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _device_name(effective_device: str) -> str:
    if effective_device == "cpu":
        return f"{_cpuinfo('model name') or platform.processor() or 'CPU'}, {len(os.sched_getaffinity(0))} cores"
    devices = tf.config.list_physical_devices(effective_device.upper())
    names = [tf.config.experimental.get_device_details(d).get("device_name", d.name) for d in devices]
    return ", ".join(names)
