"""Strategies: a requested device becomes a tf.distribute strategy, or the reason why not.

``replicas`` splits the CPU into logical devices under MirroredStrategy, so that replicated training is the real thing
on any machine.
"""

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

from pipeline import machine
from pipeline.config import TPU_ADDRESS, TrainSettings, names_tpu, refuse, refuse_replicas
from pipeline.errors import HardwareMismatchError, SettingsError
from pipeline.hardware import words
from pipeline.hardware.mismatch import Mismatch, explain, is_known

# TensorFlow itself waits for an address that does not answer without end.
CONNECT_TIMEOUT_SECONDS = 10
_TPU_PORT = 8470


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a run is to compute.

    ``effective_device`` is "cpu", "gpu" or "tpu"; ``resolver`` and ``topology`` are what a TPU's said, plain data;
    ``mismatch`` is set where another device was requested and is unavailable; ``device_reason`` says in words why it is
    this device, and above all what "auto" found.
    """

    strategy: tf.distribute.Strategy
    requested_device: str
    effective_device: str
    device_reason: str = ""
    mismatch: Mismatch | None = None
    resolver: dict = field(default_factory=dict)
    topology: dict = field(default_factory=dict)

    @property
    def num_replicas(self) -> int:
        """Copies of the model that train in step."""
        return self.strategy.num_replicas_in_sync


def split_cpu(replicas: int) -> None:
    """Lay out ``replicas`` logical CPU devices, before TensorFlow first computes: it holds for the process.

    Raises:
        SettingsError: TensorFlow has computed already, on another layout.
    """
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        except RuntimeError:
            if len(tf.config.list_logical_devices("CPU")) < replicas:
                refuse("Train", "replicas", "the number this process began with; run again", replicas)


def place(settings: TrainSettings) -> Placement:
    """The strategy for the device of the settings, "auto" being the first there is of TPU, GPU, CPU.

    Raises:
        HardwareMismatchError: the device is not there, and ``on_mismatch`` is not "fallback"; holds the Mismatch.
        SettingsError: ``replicas`` was given for another device than the CPU, or TPU_NAME can be no TPU's.
    """
    requested = settings.device
    wanted, reason = _first_present() if requested == "auto" else (requested, words.requested(requested))
    try:
        strategy = _STRATEGIES[wanted](settings)
        return Placement(requested_device=requested, effective_device=wanted, device_reason=reason, **strategy)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "fallback":
            raise
        mismatch = Mismatch(**error.mismatch)
    instead = "gpu" if wanted == "tpu" and tf.config.list_physical_devices("GPU") else "cpu"
    strategy, reason = _STRATEGIES[instead](settings), words.fallback(reason, wanted, instead)
    return Placement(
        requested_device=requested, effective_device=instead, device_reason=reason, mismatch=mismatch, **strategy
    )


@contextlib.contextmanager
def explaining(placement: Placement) -> Iterator[None]:
    """Explain what fails on a TPU only once it is used, such as files that its host cannot read.

    Raises:
        HardwareMismatchError: TensorFlow failed on a TPU; holds the Mismatch.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if placement.effective_device != "tpu":
            raise
        mismatch = explain("tpu", error)
        raise HardwareMismatchError(str(mismatch), mismatch.to_json()) from error


@contextlib.contextmanager
def _asking(device: str) -> Iterator[None]:
    """Around calls of the runtime and the resolver alone: what they raise where the device is unavailable.

    Anything else is a bug, or a failure of another kind, and says nothing about the device.

    Raises:
        HardwareMismatchError: it is unavailable; holds the Mismatch.
    """
    try:
        yield
    except (ImportError, ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        if not is_known(device, error) and not isinstance(error, tf.errors.OpError):
            raise
        mismatch = explain(device, error)
        raise HardwareMismatchError(str(mismatch), mismatch.to_json()) from error


def _first_present() -> tuple[str, str]:
    """The first device there is of TPU, GPU, CPU, and the reason in words."""
    # A TPU host announces itself by these; asking the resolver without them only waits for a metadata server.
    if name := os.environ.get("TPU_NAME"):
        return "tpu", words.auto_tpu(name=name)
    if chips := machine.tpu_chips():
        return "tpu", words.auto_tpu(chips=chips)
    gpus = tf.config.list_physical_devices("GPU")
    return "gpu" if gpus else "cpu", words.auto_without_tpu(len(gpus))


def _on_cpu(settings: TrainSettings) -> dict:
    if settings.replicas > 1:
        split_cpu(settings.replicas)
        return {"strategy": tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(settings.replicas)])}
    if not tf.config.list_logical_devices("GPU"):
        # The device TensorFlow takes by itself; a strategy of our own would copy every batch once more.
        return {"strategy": tf.distribute.get_strategy()}
    return {"strategy": tf.distribute.OneDeviceStrategy("/cpu:0")}


def _on_gpu(settings: TrainSettings) -> dict:
    refuse_replicas(settings.replicas, "gpu")
    with _asking("gpu"):
        gpus = tf.config.list_logical_devices("GPU")
        if not gpus:
            if not tf.test.is_built_with_cuda():
                raise RuntimeError("TensorFlow is built without CUDA")
            raise RuntimeError("TensorFlow sees none" if Path("/dev/nvidiactl").exists() else "no driver")
        if len(gpus) == 1:
            return {"strategy": tf.distribute.OneDeviceStrategy("/gpu:0")}
        return {"strategy": tf.distribute.MirroredStrategy([gpu.name for gpu in gpus])}


def _on_tpu(settings: TrainSettings) -> dict:
    refuse_replicas(settings.replicas, "tpu")
    address = _tpu_address(settings)
    with _asking("tpu"):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            address, zone=settings.tpu_zone or None, project=settings.tpu_project or None
        )
        master = resolver.master()
    if settings.tpu_address != "local":
        host, port = _host_and_port(master)
        with _asking("tpu"):
            _require_answer(master, host, port)
            tf.config.experimental_connect_to_cluster(resolver)
    with _asking("tpu"):
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        if not tf.config.list_logical_devices("TPU"):
            # A resolver for "local" answers on any machine.
            raise RuntimeError("the topology holds no TPU")
        strategy = tf.distribute.TPUStrategy(resolver)
    return {
        "strategy": strategy,
        "resolver": {"master": master, "cluster": _cluster(resolver)},
        "topology": {
            "mesh_shape": [int(size) for size in topology.mesh_shape],
            "num_tasks": int(topology.num_tasks),
            "num_tpus_per_task": int(topology.num_tpus_per_task),
        },
    }


def _tpu_address(settings: TrainSettings) -> str | None:
    """``tpu_address``, TPU_NAME, or this very host where it has TPUs.

    Raises:
        SettingsError: TPU_NAME can be no TPU's.
    """
    if settings.tpu_address:
        return settings.tpu_address
    name = os.environ.get("TPU_NAME")
    if name and not names_tpu(name):
        raise SettingsError(f"environment variable TPU_NAME: expected {TPU_ADDRESS}, got {name!r}.")
    return name or ("local" if machine.tpu_chips() else None)


def _host_and_port(master: str) -> tuple[str | None, int]:
    parts = urllib.parse.urlsplit(master if "://" in master else f"grpc://{master}")
    return parts.hostname, parts.port or _TPU_PORT


def _require_answer(master: str, host: str | None, port: int) -> None:
    if host:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            raise ConnectionError(f"{master} is unreachable ({error})") from error


def _cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> dict:
    cluster = resolver.cluster_spec()
    return {job: list(cluster.job_tasks(job)) for job in cluster.jobs} if cluster else {}


_STRATEGIES: dict[str, Callable[[TrainSettings], dict]] = {"cpu": _on_cpu, "gpu": _on_gpu, "tpu": _on_tpu}
