"""Interface of a backend, which ``tensorflow.py`` and ``jax.py`` implement.

It also lists the variables that change a computation, and the causes of unavailable devices.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pipeline.errors import HardwareMismatchError, message
from pipeline.optional_packages import install_command
from pipeline.settings.training import TrainSettings

#: float32 with 10 mantissa bits in products, on NVIDIA GPUs since Ampere.
TF32 = "tf32"
#: The operations that a receipt times.
OPERATIONS = ("matmul", "convolution")
#: Shape of the convolution, with images of SIZE × SIZE and kernels of KERNEL × KERNEL.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3
# Libraries raise the same class for many causes, so the text of an exception identifies its cause. The texts are from
# the sources and bug reports of JAX 0.10, and from machines without accelerators. A cause begins with its device, and
# the first match counts.
_PATTERNS = {
    "tpu_build": r"TensorFlow has no TPU support",
    "tpu_packages": r"ml_dtypes|jaxlib?\b|_ARRAY_API|numpy\.core\.multiarray failed",
    "tpu_permission": r"/dev/(accel|vfio)\S*.*(Permission denied|not permitted|EACCES|EPERM)",
    "tpu_metadata": r"(instance|TPU) metadata|metadata server|metadata\.google\.internal",
    "tpu_in_use": r"already in use|libtpu lockfile|Device or resource busy|/dev/(accel|vfio).*(busy|in use)",
    "tpu_library": r"libtpu",
    "tpu_absent": r"no TPU devices|instances of tpu are present",
    "gpu_build": r"built without CUDA",
    "gpu_driver": r"no driver",
    "gpu_libraries": r"sees none",
    "gpu_jax": r"instances of gpu are present|Unable to initialize backend 'cuda'|Unknown backend cuda",
}
# Prefixes of variables of kernels, threads, compilers and matmul precision.
_COMPUTATION = (
    *("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("TF_CUDNN_", "TF_DETERMINISTIC_OPS", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "LIBTPU_INIT_ARGS"),
    *("OMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_NUM_THREADS", "JAX_"),
)
# Variables of JAX's placement, logs and caches.
_NOT_COMPUTATION = ("JAX_PLATFORM", "JAX_COORDINATOR_", "JAX_COMPILATION_CACHE_", "JAX_TRACEBACK_")
# Variables that change memory or placement only. The receipt lists them as evidence.
_EVIDENCE = (
    *("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_MEM_FRACTION", "CUDA_VISIBLE_DEVICES", "TF_GPU_ALLOCATOR"),
    "TF_FORCE_GPU_ALLOW_GROWTH",
)


class Runtime(Protocol):
    """A backend of a process. Device names end in kind and number, for example "cpu:0" or ".../device:GPU:1"."""

    #: Keras's name of the backend.
    backend: str

    def num_gpus(self) -> int:
        """Number of GPUs. The query uses no device."""

    def make_deterministic(self) -> None:
        """Make all later computations deterministic. Call this before the placement."""

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        """Fields of ``Placement`` for a device: ``strategy``, ``num_replicas`` and data of a TPU.

        HardwareMismatchError: The device is unavailable.
        """

    def scope(self, strategy: Any) -> AbstractContextManager:
        """Context that creates variables on the devices of a strategy."""

    def evaluating(self, strategy: Any) -> AbstractContextManager:
        """Context in which a trained model accepts batches of any size."""
        return contextlib.nullcontext()

    def observe(self, strategy: Any) -> dict[str, list[str] | str]:
        """Devices of a variable's replicas and of a test computation, a name per replica."""

    def check_step(self, model: Any, input_shape: tuple[int, ...]) -> None:
        """Raise an exception if the backend cannot compile a training step of a model."""

    def observe_training(self, model: Any) -> Callable[[], list[str]]:
        """Observe the train function of a compiled model. Observation does not change the computation.

        After ``fit``, the result returns a device name per replica, or none if the backend lists no devices.
        """

    def computations(self, device: str, side: int, dtype: str) -> dict[str, Callable[[], object]]:
        """Functions that run ``OPERATIONS`` on a device. A call returns when its result is ready."""

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        """Function that trains for ``steps`` steps on one batch and returns their seconds."""

    def step_flops(self, model: Any, batch: Any) -> float | None:
        """Floating-point operations of a compiled model's step on a batch. None if they cannot be counted."""

    def step_bytes(self, model: Any, batch: Any) -> float | None:
        """Bytes of memory that a compiled step reads and writes. None if the backend does not count them."""

    def describe(self, strategy: Any) -> dict[str, Any]:
        """Fields of the receipt.

        ``strategy`` and ``logical_devices`` are names. ``physical_devices`` have ``type``, ``name`` and further
        properties. ``versions`` may contain None. ``threads`` are the configured sizes of thread pools, or 0 if the
        backend chooses. ``matmul_precision`` is "highest" or "tf32".
        """

    def set_matmul_precision(self, precision: str) -> None:
        """Compute float32 products and convolutions in full precision, or in TF32 for "tf32"."""

    def reset_peak_memory(self) -> None:
        """Reset the peak memory of the devices, if possible."""

    def peak_device_bytes(self, device: str) -> int | None:
        """Peak memory of the first accelerator. None for a CPU or if unknown."""

    def profile(self, folder: Path) -> AbstractContextManager:
        """Context that writes a trace for TensorBoard."""


def computation_flags(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change the computation or its speed."""
    names = (name for name in sorted(environment) if name.startswith(_COMPUTATION))
    return {name: environment[name] for name in names if not name.startswith(_NOT_COMPUTATION)}


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """``computation_flags``, plus variables that change memory or placement."""
    return computation_flags(environment) | {name: environment[name] for name in _EVIDENCE if name in environment}


def explain(device: str, error: BaseException) -> HardwareMismatchError:
    """Convert an exception during the placement on a device to an error with cause and remedy."""
    text = f"{type(error).__name__}: {error}"
    matching = (name for name, pattern in _PATTERNS.items() if re.search(pattern, text, re.IGNORECASE))
    cause, remedy = _cause_and_remedy(next((name for name in matching if name.startswith(device)), ""), text)
    mismatch = {"device": device, "cause": cause, "remedy": remedy, "error": text}
    return HardwareMismatchError(f"[Train] device: {device} was requested. {cause} {remedy}", mismatch)


@message
def _cause_and_remedy(name: str, text: str) -> tuple[str, str]:
    another_device = "or choose another device with [Train] device"
    causes = {
        "": f"It could not be initialized for an unknown reason: {text}",
        "tpu_build": "TensorFlow has no TPU support.",
        "tpu_packages": "The installed libraries need different versions of ml_dtypes, JAX or NumPy.",
        "tpu_permission": "This user cannot open the TPU's device files (/dev/vfio or /dev/accel).",
        "tpu_metadata": "The metadata server, which assigns a rank to each TPU host, does not respond.",
        "tpu_in_use": "Another process uses the TPU. libtpu allows one process at a time.",
        "tpu_library": "The library libtpu could not be loaded.",
        "tpu_absent": "This machine lists no TPU.",
        "gpu_build": "This build of TensorFlow has no GPU support.",
        "gpu_driver": "This machine has no NVIDIA driver.",
        "gpu_jax": "The driver is installed, but JAX sees no GPU. Its CUDA plugin is missing or could not be loaded.",
        "gpu_libraries": "The driver is installed, but TensorFlow could not load its CUDA libraries or use the GPU.",
    }
    remedies = {
        "": f"Read the message, {another_device}.",
        "tpu_build": f"Set [Train] backend = jax, which needs {install_command('jax-tpu')}, {another_device}.",
        "tpu_packages": f"Install the versions of this release into a fresh environment with {install_command()}.",
        "tpu_permission": "Add the user to the group that owns them. In a container, pass the devices through.",
        "tpu_metadata": "Run on the TPU VM itself, with its metadata server, or set TPU_SKIP_MDS_QUERY=1 and the "
        f"variables of the topology, {another_device}.",
        "tpu_in_use": "Wait for that process or end it, then run again.",
        "tpu_library": f"Install libtpu on the TPU host, {another_device}.",
        "tpu_absent": f"Run on a TPU host, {another_device}.",
        "gpu_build": f"Install the GPU build with {install_command('gpu')}, {another_device}.",
        "gpu_driver": f"Run on a machine whose nvidia-smi lists a GPU, {another_device}.",
        "gpu_jax": f"Install it with {install_command('jax-gpu')} and check CUDA_VISIBLE_DEVICES, {another_device}.",
        "gpu_libraries": f"Run {install_command('gpu')} and check CUDA_VISIBLE_DEVICES, {another_device}.",
    }
    return causes[name], remedies[name]
