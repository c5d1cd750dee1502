"""Backend: TensorFlow or JAX, chosen before Keras is imported, which takes one for the life of a process.

By what the machine and its packages say of themselves: nothing heavy is imported, nothing is initialised.
"""

import os
from importlib import metadata
from pathlib import Path

from pipeline import machine
from pipeline.config.refusal import refuse
from pipeline.config.training import JAX, TENSORFLOW, TrainSettings

# Distributions with which JAX computes on NVIDIA cards, one for each CUDA.
_CUDA_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")


def choose_backend(settings: TrainSettings) -> str:
    """Either "tensorflow" or "jax"; "auto" takes JAX on a TPU of this host, and on a GPU where JAX has CUDA.

    So it does for several processes, in which Keras does not train on TensorFlow. On a CPU TensorFlow is 4 to 14 times
    faster (docs/LOG.md). A TPU on another machine, by its address or name, is TensorFlow's alone.
    """
    if settings.backend != "auto":
        return settings.backend
    if settings.processes > 1:
        return JAX
    if settings.device in ("auto", "tpu") and machine.tpu_chips() and not _is_remote(settings):
        return JAX
    if settings.device in ("auto", "gpu") and _has_nvidia_driver() and any(map(_is_installed, _CUDA_PLUGINS)):
        return JAX
    return TENSORFLOW


def require_backend(settings: TrainSettings) -> None:
    """Refuse a backend whose packages are not installed.

    Raises:
        SettingsError: names the command that installs them.
    """
    backend = choose_backend(settings)
    if backend == JAX and not _is_installed("jax"):
        extra = {"gpu": "jax-gpu", "tpu": "jax-tpu"}.get(settings.device, "jax")
        refuse(
            "Train",
            "backend",
            "tensorflow, as the package jax is not installed",
            settings.backend,
            f" It is with make setup EXTRA={extra}.",
        )


def _is_remote(settings: TrainSettings) -> bool:
    address = settings.tpu_address or os.environ.get("TPU_NAME") or "local"
    return address != "local"


def _has_nvidia_driver() -> bool:
    return Path("/dev/nvidiactl").exists()


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
