"""The choice of TensorFlow or JAX before Keras is imported, and environment variables that change the computation.

The choice depends on the machine and the installed packages. Nothing heavy is imported.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pipeline import machine
from pipeline.optional_packages import install_command, installed_version
from pipeline.settings.setting_error import refuse
from pipeline.settings.training import JAX, TENSORFLOW, TrainSettings

# Distributions for JAX on NVIDIA cards, one per CUDA version.
_CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
# Kernels, the number of threads, compilers and the precision of products. Prefixes end in an underscore.
_COMPUTATION = (
    *("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("TF_CUDNN_", "TF_DETERMINISTIC_OPS", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "LIBTPU_INIT_ARGS"),
    *("OMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_NUM_THREADS", "JAX_"),
)
# Placement, logs and caches of JAX.
_NOT_COMPUTATION = (
    "JAX_PLATFORMS",
    "JAX_PLATFORM_NAME",
    "JAX_COORDINATOR_",
    "JAX_COMPILATION_CACHE_",
    "JAX_TRACEBACK_",
)
# They change memory or placement and are evidence only.
_EVIDENCE = (
    *("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_MEM_FRACTION", "CUDA_VISIBLE_DEVICES", "TF_GPU_ALLOCATOR"),
    *("TF_FORCE_GPU_ALLOW_GROWTH", "TPU_NAME"),
)


def choose_backend(settings: TrainSettings) -> str:
    """Either "tensorflow" or "jax". "auto" takes JAX on a TPU of this host, and on a GPU if JAX has CUDA.

    Several processes need JAX. On a CPU TensorFlow is 4 to 14 times faster (docs/LOG.md). A TPU of another machine
    needs TensorFlow.
    """
    if settings.backend != "auto":
        return settings.backend
    if settings.processes > 1:
        return JAX
    is_remote = (settings.tpu_address or os.environ.get("TPU_NAME") or "local") != "local"
    if settings.device in ("auto", "tpu") and machine.tpu_chips() and not is_remote:
        return JAX
    if settings.device in ("auto", "gpu") and _has_nvidia_driver() and any(map(installed_version, _CUDA_PLUGINS)):
        return JAX
    return TENSORFLOW


def require_backend(settings: TrainSettings) -> None:
    """Refuse a backend whose packages are not installed, by a SettingsError with the command that installs them."""
    if choose_backend(settings) == JAX and not installed_version("jax"):
        extra = {"gpu": "jax-gpu", "tpu": "jax-tpu"}.get(settings.device, "jax")
        refuse("Train", "backend", f"tensorflow, as jax needs {install_command(extra)}", settings.backend)


def _has_nvidia_driver() -> bool:
    return Path("/dev/nvidiactl").exists()


def computation_flags(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change the computation or its speed."""
    return {
        name: environment[name]
        for name in sorted(environment)
        if _is_one_of(name, _COMPUTATION) and not _is_one_of(name, _NOT_COMPUTATION)
    }


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """``computation_flags``, and variables that change memory or placement."""
    return computation_flags(environment) | {name: environment[name] for name in _EVIDENCE if name in environment}


def _is_one_of(name: str, listed: tuple[str, ...]) -> bool:
    return any(name == one or (one.endswith("_") and name.startswith(one)) for one in listed)
