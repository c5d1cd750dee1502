"""Runtime: what training asks of the backend that computes.

TensorFlow and JAX each have one, in a file of that name. A process has one backend, as Keras has: ``backend.py``
chooses it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pipeline.config.training import TrainSettings

#: float32 whose products are of 10 bits after the point, by the matrix units of NVIDIA's GPUs since Ampere.
TF32 = "tf32"


def dtype_of(precision: str) -> str:
    """The type of the numbers that are multiplied."""
    return "float32" if precision == TF32 else precision


class Runtime(Protocol):
    """A backend's devices. Names of devices end in their kind and number, as in "cpu:0" or ".../device:GPU:1"."""

    #: As Keras calls it.
    backend: str

    def first_present(self) -> tuple[str, str]:
        """The first device there is of "tpu", "gpu", "cpu", and the reason in words."""

    def make_deterministic(self) -> None:
        """Let all that is computed from here on give the same bits each time; called before anything is placed."""

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        """Fields of the Placement on a device, ``strategy`` and ``num_replicas`` among them.

        Raises:
            HardwareMismatchError: it is unavailable; holds the Mismatch.
            SettingsError: the settings do not fit the device.
        """

    def failed_in_use(self, error: Exception) -> bool:
        """Whether an exception of the training is the device's: of an operation on it, not of our own code."""

    def strategy_name(self, strategy: Any) -> str:
        """How a strategy is called."""

    def scope(self, strategy: Any) -> AbstractContextManager:
        """In which variables are made on the devices of a strategy."""

    def evaluating(self, strategy: Any) -> AbstractContextManager:
        """In which a trained model sees batches of any size."""

    def observe(self, strategy: Any) -> dict[str, list[str] | str]:
        """Devices of a variable's copies, and those that a computation of the probe's own ran on, one a replica."""

    def observe_training(self, model: Any) -> list[str]:
        """A list that fills with the devices that the first call of a compiled model's train function computed on."""

    def computations(self, device: str, side: int, precision: str) -> dict[str, Callable[[], object]]:
        """What is timed, by name (probe.OPERATIONS); a call returns when the result is there."""

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        """A function that trains a trained model on for some steps of the same batch, and gives the seconds it took."""

    def step_flops(self, model: Any, batch: Any) -> float | None:
        """Floating-point operations of a compiled model's step on a batch; None where they cannot be counted."""

    def step_bytes(self, model: Any, batch: Any) -> float | None:
        """Bytes that a step reads from memory and writes to it, as compiled; None where they are not counted."""

    def logical_devices(self) -> list[str]:
        """Names of all devices that the backend computes on here."""

    def physical_devices(self) -> list[dict]:
        """``type`` and ``name`` of each, and what more is known of it."""

    def versions(self) -> dict[str, str | None]:
        """Of the backend, and of what it computes with."""

    def threads(self) -> dict[str, int]:
        """How many it was told to use; 0: its own choice."""

    def set_matmul_precision(self, precision: str) -> None:
        """Compute products and convolutions of float32 with all its bits, or, for "tf32", in TF32."""

    def matmul_precision(self) -> str:
        """Which of both is in force, "highest" or "tf32"."""

    def computes_in_bfloat16(self, device: str) -> bool:
        """Whether the kind of device multiplies bfloat16 faster than float32."""

    def compiles(self, device: str) -> bool:
        """Whether compiling with XLA pays on the kind of device."""

    def reset_peak_memory(self) -> None:
        """Let the devices' peaks count from here, where they can be reset."""

    def peak_device_bytes(self, device: str) -> int | None:
        """The most memory the first accelerator held; None for a CPU, whose memory is the host's, and where unknown."""

    def profile(self, folder: Path) -> AbstractContextManager:
        """Leaves a trace for TensorBoard of what runs in the block."""
