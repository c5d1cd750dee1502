"""Flags: environment variables that change how a network is computed, and stand in no setting (hardware's aid)."""

from collections.abc import Mapping

# Kernels, the number of threads, compilers and the precision of products. Prefixes end in an underscore.
_COMPUTATION = (
    *("TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS"),
    *("TF_CUDNN_", "TF_DETERMINISTIC_OPS", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "LIBTPU_INIT_ARGS"),
    *("OMP_", "KMP_", "MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_NUM_THREADS", "JAX_"),
)
# Of JAX: where it computes, which the receipt says, and what it logs and keeps.
_NOT_COMPUTATION = (
    "JAX_PLATFORMS",
    "JAX_PLATFORM_NAME",
    "JAX_COORDINATOR_",
    "JAX_COMPILATION_CACHE_",
    "JAX_TRACEBACK_",
)
# They change memory or placement, and are evidence alone.
_EVIDENCE = (
    *("JAX_PLATFORMS", "XLA_PYTHON_CLIENT_MEM_FRACTION", "CUDA_VISIBLE_DEVICES", "TF_GPU_ALLOCATOR"),
    *("TF_FORCE_GPU_ALLOW_GROWTH", "TPU_NAME"),
)


def computation_flags(environment: Mapping[str, str]) -> dict[str, str]:
    """Name → value of the variables that change what is computed or how fast."""
    return {
        name: environment[name]
        for name in sorted(environment)
        if _is_one_of(name, _COMPUTATION) and not _is_one_of(name, _NOT_COMPUTATION)
    }


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """The same, and those that change memory or placement."""
    return computation_flags(environment) | {name: environment[name] for name in _EVIDENCE if name in environment}


def _is_one_of(name: str, listed: tuple[str, ...]) -> bool:
    return any(name == one or (one.endswith("_") and name.startswith(one)) for one in listed)
