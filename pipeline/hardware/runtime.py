"""The interface of a backend. ``tensorflow.py`` and ``jax.py`` implement it; a process has one of them."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pipeline.settings.training import TrainSettings

#: float32 with products of 10 bits after the point, on matrix units of NVIDIA GPUs since Ampere.
TF32 = "tf32"


class Runtime(Protocol):
    """A backend. Names of devices end in kind and number, for example "cpu:0" or ".../device:GPU:1"."""

    #: Keras's name.
    backend: str
    #: The class of exceptions that come from an operation on a device.
    device_error: type[Exception]

    def num_gpus(self) -> int:
        """The number of GPUs, without a use of a device."""

    def make_deterministic(self) -> None:
        """Make all later computations deterministic. Call it before the placement."""

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        """Fields of the Placement on a device: ``strategy``, ``num_replicas`` and data of a TPU.

        Raises:
            HardwareMismatchError: it is unavailable.
            SettingsError: the process already computes on another number of logical CPUs.
        """

    def scope(self, strategy: Any) -> AbstractContextManager:
        """The context that creates variables on the devices of a strategy."""

    def evaluating(self, strategy: Any) -> AbstractContextManager:
        """The context in which a trained model takes batches of any size."""
        return contextlib.nullcontext()

    def observe(self, strategy: Any) -> dict[str, list[str] | str]:
        """Devices of a variable's copies and of a test computation, one per replica."""

    def observe_training(self, model: Any) -> Callable[[], list[str]]:
        """A function that returns the devices of a compiled model's train function after ``fit``, one per replica.

        They are empty if the backend does not list them. Training calls nothing else than without it.
        """

    def computations(self, device: str, side: int, dtype: str) -> dict[str, Callable[[], object]]:
        """The timed operations of probe.OPERATIONS. A call returns when its result is ready."""

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        """A function that trains for some steps on the same batch and returns their seconds."""

    def step_flops(self, model: Any, batch: Any) -> float | None:
        """Floating-point operations of a compiled model's step on a batch, if they can be counted."""

    def step_bytes(self, model: Any, batch: Any) -> float | None:
        """Bytes of memory that a compiled step reads and writes, if they are counted."""

    def describe(self, strategy: Any) -> dict[str, Any]:
        """Fields of the receipt.

        ``strategy`` and ``logical_devices`` are names. ``physical_devices`` have a ``type``, a ``name`` and further
        properties. ``versions`` may contain None. ``threads`` are the configured sizes of thread pools, 0 for the
        backend's own choice. ``matmul_precision`` is the one in force, "highest" or "tf32".
        """

    def set_matmul_precision(self, precision: str) -> None:
        """Compute products and convolutions of float32 in full precision, or in TF32 for "tf32"."""

    def computes_in_bfloat16(self, device: str) -> bool:
        """Whether the device multiplies bfloat16 faster than float32."""

    def reset_peak_memory(self) -> None:
        """Reset the peak memory of the devices, if possible."""

    def peak_device_bytes(self, device: str) -> int | None:
        """Peak memory of the first accelerator. None for a CPU and if unknown."""

    def profile(self, folder: Path) -> AbstractContextManager:
        """A context that writes a trace for TensorBoard."""
