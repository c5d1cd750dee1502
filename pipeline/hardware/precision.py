"""The rules behind ``precision = auto`` and ``jit_compile = auto``."""

import os
from collections.abc import Callable

import tensorflow as tf

from pipeline import machine

# oneDNN multiplies bfloat16 natively where the processor has one of these.
_BFLOAT16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
_FIRST_GPU_CAPABILITY_WITH_BFLOAT16 = (8, 0)


def choose_precision(requested: str, effective_device: str) -> str:
    """Either "float32" or "bfloat16"; "auto" takes bfloat16 where the hardware computes in it."""
    if requested != "auto":
        return requested
    return "bfloat16" if _BFLOAT16_RULES[effective_device]() else "float32"


def choose_jit_compile(requested: str, effective_device: str) -> bool:
    """Whether to compile with XLA; "auto" does on GPU and TPU. On a CPU it made the CNN four times slower."""
    return requested == "true" if requested != "auto" else effective_device in ("gpu", "tpu")


def _cpu_computes_bfloat16() -> bool:
    # Without oneDNN the same processor is slower in bfloat16 than in float32.
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0" and bool(_BFLOAT16_CPU_FLAGS & machine.cpu_flags())


def _gpus_compute_bfloat16() -> bool:
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    return all(d.get("compute_capability", (0, 0)) >= _FIRST_GPU_CAPABILITY_WITH_BFLOAT16 for d in details)


_BFLOAT16_RULES: dict[str, Callable[[], bool]] = {
    "cpu": _cpu_computes_bfloat16,
    "gpu": _gpus_compute_bfloat16,
    "tpu": lambda: True,
}
