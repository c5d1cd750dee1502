"""Choice of TensorFlow or JAX, placement of a run on devices, and other rules for ``auto``.

The choice depends on the machine and the installed packages. It imports no numerical library.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pipeline import machine
from pipeline.errors import HardwareMismatchError, message, refuse
from pipeline.hardware.runtime import TF32, Runtime
from pipeline.optional_packages import install_command, installed_version
from pipeline.settings.training import JAX, TENSORFLOW, TrainSettings, refuse_replicas

# Packages for JAX on NVIDIA GPUs, one per CUDA version.
_CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
# Instruction sets with which oneDNN multiplies bfloat16, and NVIDIA's first compute capability with such matrix units.
_BFLOAT16_CPU_FLAGS, _BFLOAT16_GPU = frozenset({"avx512_bf16", "amx_bf16"}), 8.0


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


def runtime_called(backend: str) -> Runtime:
    """Import the runtime of a backend by its name, "tensorflow" or "jax"."""
    if backend == JAX:
        from pipeline.hardware import jax as module
    else:
        from pipeline.hardware import tensorflow as module
    return module.RUNTIME


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Devices of a run.

    ``effective_device`` is "cpu", "gpu" or "tpu". ``device_reason`` explains the choice. ``mismatch`` is set if the
    requested device is unavailable. ``topology`` is JSON data of a TPU. The type of ``strategy`` depends on the
    runtime.
    """

    runtime: Runtime
    strategy: Any
    num_replicas: int
    requested_device: str
    effective_device: str
    device_reason: str = ""
    mismatch: dict | None = None
    topology: dict = field(default_factory=dict)

    def scope(self) -> AbstractContextManager:
        """Context that creates the model's variables."""
        return self.runtime.scope(self.strategy)


def place(settings: TrainSettings, runtime: Runtime | None = None) -> Placement:
    """Place a run on the requested device. "auto" selects the first available of TPU, GPU and CPU.

    HardwareMismatchError: The device is unavailable, and ``on_mismatch`` is not "fallback". SettingsError: The settings
    do not fit the device.
    """
    runtime = runtime or runtime_called(choose_backend(settings))
    if settings.deterministic == "true":
        runtime.make_deterministic()
    requested = settings.device
    device, reason = first_present(runtime) if requested == "auto" else (requested, _reason(requested))
    if device != "cpu":
        refuse_replicas(settings.replicas, device)
    mismatch = None
    try:
        fields = runtime.place_on(device, settings)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "fallback":
            raise
        mismatch, unavailable = error.mismatch, device
        try:
            device = "gpu" if unavailable == "tpu" and runtime.num_gpus() else "cpu"
            fields = runtime.place_on(device, settings)
        except HardwareMismatchError:
            # JAX also counts GPUs that it cannot use.
            device, fields = "cpu", runtime.place_on("cpu", settings)
        reason = _fallback(reason, unavailable, device)
    fields |= {"runtime": runtime, "requested_device": requested, "effective_device": device}
    return Placement(device_reason=reason, mismatch=mismatch, **fields)


def first_present(runtime: Runtime) -> tuple[str, str]:
    """First available device of "tpu", "gpu" and "cpu", and the reason for the choice."""
    chips = machine.tpu_chips()
    num_gpus = 0 if chips else runtime.num_gpus()
    return "tpu" if chips else "gpu" if num_gpus else "cpu", _reason("", chips, num_gpus, runtime.backend)


def choose_precision(requested: str, placement: Placement, is_depthwise: Callable[[], bool] = lambda: False) -> str:
    """Choose "float32", "tf32" or "bfloat16". "auto" selects bfloat16 if it is faster.

    "tf32" becomes "float32" on hardware without TF32. ``is_depthwise`` returns whether the model has depthwise
    convolutions. It may build the model, so it is only called if the answer matters.
    """
    if requested == TF32:
        return TF32 if placement.effective_device == "gpu" else "float32"
    if requested != "auto":
        return requested
    if not _computes_in_bfloat16(placement):
        return "float32"
    # On CPUs with AVX512_BF16, EfficientNet-Lite0 takes twice the time in bfloat16 (docs/LOG.md).
    return "float32" if placement.effective_device == "cpu" and is_depthwise() else "bfloat16"


def _computes_in_bfloat16(placement: Placement) -> bool:
    """Whether the device multiplies bfloat16 faster than float32."""
    runtime, device = placement.runtime, placement.effective_device
    if device == "cpu":
        # XLA converts bfloat16 to float32 and back, and so does TensorFlow without oneDNN.
        has_onednn = runtime.backend == TENSORFLOW and os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0"
        return has_onednn and bool(_BFLOAT16_CPU_FLAGS & machine.cpu_flags())
    gpus = [each for each in runtime.describe(placement.strategy)["physical_devices"] if each["type"] == "gpu"]
    return device == "tpu" or all(float(gpu.get("compute_capability", 0)) >= _BFLOAT16_GPU for gpu in gpus)


def choose_jit_compile(requested: str, placement: Placement) -> bool:
    """Decide whether to compile with XLA. "auto" compiles if that is faster. SettingsError: "false" with JAX."""
    is_jax = placement.runtime.backend == JAX
    if requested == "auto":
        # On a CPU with TensorFlow, XLA made the baseline CNN four times slower.
        return is_jax or placement.effective_device != "cpu"
    if requested == "false" and is_jax:
        refuse("Train", "jit_compile", "auto or true, because JAX always compiles", requested)
    return requested == "true"


@message
def _fallback(reason: str, unavailable: str, device: str) -> str:
    return f"{reason}, but {unavailable} is unavailable. Using {device}"


@message
def _reason(requested: str, chips: Sequence[str] = (), num_gpus: int = 0, backend: str = "") -> str:
    if requested:
        return f"[Train] device = {requested}"
    if chips:
        return f"auto: {len(chips)} × {chips[0]} on the PCI bus"
    gpus = f"{num_gpus} GPU" if num_gpus else "no GPU"
    return f"auto: no TPU on the PCI bus, {gpus} listed by {'TensorFlow' if backend == TENSORFLOW else 'the driver'}"
