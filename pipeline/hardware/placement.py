"""Placement: where a run is to compute, on the devices of a backend, and why there."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pipeline.config.training import JAX, TrainSettings
from pipeline.errors import HardwareMismatchError
from pipeline.hardware import words
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.mismatch import Mismatch, explain
from pipeline.hardware.runtime import Runtime


def runtime_of(settings: TrainSettings) -> Runtime:
    """The runtime of the settings' backend."""
    return runtime_called(choose_backend(settings))


def runtime_called(backend: str) -> Runtime:
    """The runtime of a backend, by Keras's name for it."""
    # Each brings its library along.
    if backend == JAX:
        from pipeline.hardware import jax as chosen
    else:
        from pipeline.hardware import tensorflow as chosen
    return chosen.RUNTIME


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a run is to compute.

    ``effective_device`` is "cpu", "gpu" or "tpu"; ``resolver`` and ``topology`` are what a TPU's said, plain data;
    ``mismatch`` is set where another device was requested and is unavailable; ``device_reason`` says in words why it is
    this device, and above all what "auto" found. ``strategy`` is the runtime's own.
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
        """In which the model's variables are made."""
        return self.runtime.scope(self.strategy)

    def evaluating(self) -> AbstractContextManager:
        """In which the model is evaluated."""
        return self.runtime.evaluating(self.strategy)

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Explain what fails on a TPU only once it is used, such as files that its host cannot read.

        Raises:
            HardwareMismatchError: the device failed on a TPU; holds the Mismatch.
        """
        try:
            yield
        except Exception as error:
            if self.effective_device != "tpu" or not self.runtime.failed_in_use(error):
                raise
            mismatch = explain("tpu", error)
            raise HardwareMismatchError(str(mismatch), mismatch.to_json()) from error


def place(settings: TrainSettings, runtime: Runtime | None = None) -> Placement:
    """The placement on the device of the settings, "auto" being the first there is of TPU, GPU, CPU.

    Raises:
        HardwareMismatchError: the device is not there, and ``on_mismatch`` is not "fallback"; holds the Mismatch.
        SettingsError: the settings do not fit the device.
    """
    runtime = runtime or runtime_of(settings)
    if settings.deterministic == "true":
        runtime.make_deterministic()
    requested = settings.device
    wanted, reason = runtime.first_present() if requested == "auto" else (requested, words.requested(requested))
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
    found, reason = runtime.place_on(instead, settings), words.fallback(reason, wanted, instead)
    return Placement(effective_device=instead, device_reason=reason, mismatch=mismatch, **about, **found)
