"""The interface of a backend. ``tensorflow.py`` and ``jax.py`` implement it; a process has one of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pipeline.config.training import TrainSettings
from pipeline.errors import message

#: float32 with products of 10 bits after the point, on matrix units of NVIDIA GPUs since Ampere.
TF32 = "tf32"


def dtype_of(precision: str) -> str:
    """The dtype of the factors of a product."""
    return "float32" if precision == TF32 else precision


class Runtime(Protocol):
    """A backend. Names of devices end in kind and number, for example "cpu:0" or ".../device:GPU:1"."""

    #: Keras's name.
    backend: str

    def first_present(self) -> tuple[str, str]:
        """The first available one of "tpu", "gpu" and "cpu", and the reason in words."""

    def make_deterministic(self) -> None:
        """Make all later computations deterministic. Call it before the placement."""

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        """Fields of the Placement on a device: ``strategy``, ``num_replicas`` and data of a TPU.

        Raises:
            HardwareMismatchError: it is unavailable.
            SettingsError: the settings do not fit the device.
        """

    def failed_in_use(self, error: Exception) -> bool:
        """Whether the exception comes from an operation on the device."""

    def strategy_name(self, strategy: Any) -> str:
        """The name of a strategy."""

    def scope(self, strategy: Any) -> AbstractContextManager:
        """The context that creates variables on the devices of a strategy."""

    def evaluating(self, strategy: Any) -> AbstractContextManager:
        """The context in which a trained model takes batches of any size."""

    def observe(self, strategy: Any) -> dict[str, list[str] | str]:
        """Devices of a variable's copies and of a test computation, one per replica."""

    def observe_training(self, model: Any) -> list[str]:
        """The devices of the first call of a compiled model's train function, one per replica.

        The list is filled during the coming ``fit``. It stays empty if the backend does not list them. Training calls
        nothing else than without it.
        """

    def computations(self, device: str, side: int, precision: str) -> dict[str, Callable[[], object]]:
        """The timed operations of probe.OPERATIONS. A call returns when its result is ready."""

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        """A function that trains for some steps on the same batch and returns their seconds."""

    def step_flops(self, model: Any, batch: Any) -> float | None:
        """Floating-point operations of a compiled model's step on a batch, if they can be counted."""

    def step_bytes(self, model: Any, batch: Any) -> float | None:
        """Bytes of memory that a compiled step reads and writes, if they are counted."""

    def logical_devices(self) -> list[str]:
        """Names of the devices of this process."""

    def physical_devices(self) -> list[dict]:
        """``type``, ``name`` and further properties of each device."""

    def versions(self) -> dict[str, str | None]:
        """Versions of the backend and its libraries."""

    def threads(self) -> dict[str, int]:
        """Configured sizes of its thread pools. 0: its own choice."""

    def set_matmul_precision(self, precision: str) -> None:
        """Compute products and convolutions of float32 in full precision, or in TF32 for "tf32"."""

    def matmul_precision(self) -> str:
        """The precision in force, "highest" or "tf32"."""

    def computes_in_bfloat16(self, device: str) -> bool:
        """Whether the device multiplies bfloat16 faster than float32."""

    def compiles(self, device: str) -> bool:
        """Whether XLA is faster on the device."""

    def reset_peak_memory(self) -> None:
        """Reset the peak memory of the devices, if possible."""

    def peak_device_bytes(self, device: str) -> int | None:
        """Peak memory of the first accelerator. None for a CPU and if unknown."""

    def profile(self, folder: Path) -> AbstractContextManager:
        """A context that writes a trace for TensorBoard."""


@message
def found_tpu(*, name: str | None = None, chips: Sequence[str] = ()) -> str:
    """The reason to choose a TPU: the environment names it, or chips were found."""
    return f"auto: TPU_NAME is {name}" if name else f"auto: on the PCI bus {len(chips)} × {chips[0]}"


@message
def found_no_tpu(num_gpus: int, listed_by: str) -> str:
    """The reason to choose a GPU or the CPU."""
    gpus = f"{num_gpus} GPU" if num_gpus else "no GPU"
    return f"auto: TPU_NAME is not set, no TPU on the PCI bus, {gpus} listed by {listed_by}"
