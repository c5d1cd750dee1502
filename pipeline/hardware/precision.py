"""The rules behind ``precision = auto`` and ``jit_compile = auto``."""

from pipeline.config.refusal import refuse
from pipeline.config.training import JAX
from pipeline.hardware.placement import Placement
from pipeline.hardware.runtime import TF32


def choose_precision(requested: str, placement: Placement) -> str:
    """Either "float32", "tf32" or "bfloat16"; "auto" takes bfloat16 where the hardware computes in it.

    Where nothing computes in TF32, "tf32" is float32.
    """
    if requested == TF32:
        return TF32 if placement.effective_device == "gpu" else "float32"
    if requested != "auto":
        return requested
    return "bfloat16" if placement.runtime.computes_in_bfloat16(placement.effective_device) else "float32"


def choose_jit_compile(requested: str, placement: Placement) -> bool:
    """Whether to compile with XLA; "auto" does where that pays.

    Raises:
        SettingsError: the backend is JAX, which computes no other way, and it is not to.
    """
    if requested == "auto":
        return placement.runtime.compiles(placement.effective_device)
    if requested == "false" and placement.runtime.backend == JAX:
        refuse("Train", "jit_compile", "auto or true (JAX compiles whatever it trains)", requested)
    return requested == "true"
