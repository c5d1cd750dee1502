"""Interface of a backend. ``tensorflow.py`` and ``jax.py`` implement it."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pipeline.settings.training import TrainSettings

#: float32 with 10 mantissa bits in products, on NVIDIA GPUs since Ampere.
TF32 = "tf32"
#: The operations that a receipt times.
OPERATIONS = ("matmul", "convolution")
#: Shape of the convolution, with images of SIZE × SIZE and kernels of KERNEL × KERNEL.
IMAGES, SIZE, CHANNELS_IN, CHANNELS_OUT, KERNEL = 64, 32, 32, 64, 3


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
