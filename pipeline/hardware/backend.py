"""Choice of TensorFlow or JAX, and environment variables that change the computation.

The choice depends on the machine and the installed packages. It imports no numerical library.
"""

from collections.abc import Mapping

from pipeline import machine
from pipeline.errors import refuse
from pipeline.optional_packages import install_command, installed_version
from pipeline.settings.training import JAX, TENSORFLOW, TrainSettings

# Packages for JAX on NVIDIA GPUs, one per CUDA version.
_CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
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


def choose_backend(settings: TrainSettings) -> str:
    """Choose "tensorflow" or "jax". "auto" selects JAX on a TPU, and on a GPU if JAX has CUDA.

    Several processes require JAX. On a CPU, TensorFlow is 4 to 14 times faster (docs/LOG.md).
    """
    if settings.backend != "auto":
        return settings.backend
    if settings.processes > 1:
        return JAX
    if settings.device in ("auto", "tpu") and machine.tpu_chips():
        return JAX
    has_cuda = machine.has_nvidia_driver() and any(map(installed_version, _CUDA_PLUGINS))
    if settings.device in ("auto", "gpu") and has_cuda:
        return JAX
    return TENSORFLOW


def require_backend(settings: TrainSettings) -> None:
    """Raise a SettingsError with the remedy if packages of the backend are not installed."""
    if choose_backend(settings) == JAX and not installed_version("jax"):
        extra = {"gpu": "jax-gpu", "tpu": "jax-tpu"}.get(settings.device, "jax")
        refuse("Train", "backend", f"tensorflow, because jax needs {install_command(extra)}", settings.backend)


def computation_flags(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change the computation or its speed."""
    names = (name for name in sorted(environment) if name.startswith(_COMPUTATION))
    return {name: environment[name] for name in names if not name.startswith(_NOT_COMPUTATION)}


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """``computation_flags``, plus variables that change memory or placement."""
    return computation_flags(environment) | {name: environment[name] for name in _EVIDENCE if name in environment}
