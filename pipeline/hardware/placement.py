"""Placement of a run on devices, and the rules behind ``precision = auto`` and ``jit_compile = auto``."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.refusal import refuse
from pipeline.config.training import JAX, TrainSettings
from pipeline.errors import HardwareMismatchError, message
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.mismatch import Mismatch, explain
from pipeline.hardware.runtime import TF32, Runtime


def runtime_of(settings: TrainSettings) -> Runtime:
    """The runtime of the backend in the settings."""
    return runtime_called(choose_backend(settings))


def runtime_called(backend: str) -> Runtime:
    """The runtime of a backend, by Keras's name for it."""
    if backend == JAX:
        from pipeline.hardware import jax as chosen
    else:
        from pipeline.hardware import tensorflow as chosen
    return chosen.RUNTIME


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The devices of a run.

    ``effective_device`` is "cpu", "gpu" or "tpu"; ``resolver`` and ``topology`` are plain data of a TPU; ``mismatch``
    is set if the requested device is unavailable; ``device_reason`` is the reason for this device in words; the type of
    ``strategy`` depends on the runtime.
    """

    runtime: Runtime
    strategy: Any
    num_replicas: int
    requested_device: str
    effective_device: str
    device_reason: str = ""
    mismatch: Mismatch | None = None
    resolver: dict = field(default_factory=dict)
    topology: dict = field(default_factory=dict)

    def scope(self) -> AbstractContextManager:
        """The context that creates the model's variables."""
        return self.runtime.scope(self.strategy)

    def evaluating(self) -> AbstractContextManager:
        """The context that evaluates the model."""
        return self.runtime.evaluating(self.strategy)

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise errors of a TPU in use, such as files that its host cannot read, as HardwareMismatchError."""
        try:
            yield
        except Exception as error:
            if self.effective_device != "tpu" or not self.runtime.failed_in_use(error):
                raise
            mismatch = explain("tpu", error)
            raise HardwareMismatchError(str(mismatch), mismatch.to_json()) from error


def place(settings: TrainSettings, runtime: Runtime | None = None) -> Placement:
    """The placement on the requested device. "auto" is the first available one of TPU, GPU and CPU.

    Raises:
        HardwareMismatchError: the device is unavailable, and ``on_mismatch`` is not "fallback".
        SettingsError: the settings do not fit the device.
    """
    runtime = runtime or runtime_of(settings)
    if settings.deterministic == "true":
        runtime.make_deterministic()
    requested = settings.device
    wanted, reason = runtime.first_present() if requested == "auto" else (requested, _requested(requested))
    about = {"runtime": runtime, "requested_device": requested}
    try:
        found = runtime.place_on(wanted, settings)
        return Placement(effective_device=wanted, device_reason=reason, **about, **found)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "fallback":
            raise
        mismatch = Mismatch(**error.mismatch)
    kinds = {device["type"] for device in runtime.physical_devices()}
    instead = "gpu" if wanted == "tpu" and "gpu" in kinds else "cpu"
    found, reason = runtime.place_on(instead, settings), _fallback(reason, wanted, instead)
    return Placement(effective_device=instead, device_reason=reason, mismatch=mismatch, **about, **found)


def choose_precision(requested: str, placement: Placement) -> str:
    """Either "float32", "tf32" or "bfloat16". "auto" takes bfloat16 if the hardware computes in it.

    "tf32" is float32 on hardware without it.
    """
    if requested == TF32:
        return TF32 if placement.effective_device == "gpu" else "float32"
    if requested != "auto":
        return requested
    return "bfloat16" if placement.runtime.computes_in_bfloat16(placement.effective_device) else "float32"


def choose_jit_compile(requested: str, placement: Placement) -> bool:
    """Whether to compile with XLA. "auto" compiles if that is faster. SettingsError: "false" with JAX."""
    if requested == "auto":
        return placement.runtime.compiles(placement.effective_device)
    if requested == "false" and placement.runtime.backend == JAX:
        refuse("Train", "jit_compile", "auto or true (JAX compiles whatever it trains)", requested)
    return requested == "true"


@message
def _requested(device: str) -> str:
    return f"[Train] device = {device}"


@message
def _fallback(reason: str, unavailable: str, instead: str) -> str:
    return f"{reason}; {unavailable} is unavailable, {instead} instead"
