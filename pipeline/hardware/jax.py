"""JAX runtime, with ``keras.distribution.DataParallel`` for several devices.

A process computes on one platform. The CPU serves as host for comparison. TensorFlow may be absent. If it is imported,
it must not use the GPU, because most streams use it for batches only. ``replicas`` splits the CPU into devices.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jaxlib
import keras
import numpy as np
from jax import numpy as jnp

from pipeline import machine
from pipeline.hardware.runtime import CHANNELS_IN, CHANNELS_OUT, IMAGES, KERNEL, SIZE, TF32, Runtime, explain
from pipeline.settings.training import JAX, TrainSettings

# JAX's platform names.
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_CHECKED_EXAMPLES = 2


class Jax(Runtime):
    """See runtime.Runtime."""

    backend = JAX

    def num_gpus(self) -> int:
        # A query to JAX would initialize it.
        return len(machine.nvidia_cards())

    def make_deterministic(self) -> None:
        # XLA reads the flag at the first use of a device. CPUs and TPUs are deterministic without it.
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()

    def place_on(self, device: str, settings: TrainSettings) -> dict:
        if tf := sys.modules.get("tensorflow"):
            tf.config.set_visible_devices([], "GPU")
        jax.config.update("jax_platforms", _PLATFORMS[device])
        limit = settings.replicas if device == "cpu" else None
        if device == "cpu" and settings.replicas > 1:
            jax.config.update("jax_num_cpu_devices", settings.replicas)
        available = _devices(device)
        groups = ([item for item in available if item.process_index == rank] for rank in range(jax.process_count()))
        devices = [item for group in groups for item in group[:limit]]
        topology = {"process_count": jax.process_count(), "local_devices": jax.local_device_count()}
        return {"strategy": tuple(devices), "num_replicas": len(devices), "topology": topology}

    def scope(self, strategy: tuple[jax.Device, ...]) -> AbstractContextManager:
        if len(strategy) == 1:
            return jax.default_device(strategy[0])
        # The distribution outlives the scope, because fit needs it too. Clearing Keras's session ends it.
        distribution = keras.distribution.DataParallel(devices=_names(strategy), auto_shard_dataset=False)
        keras.distribution.set_distribution(distribution)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def evaluating(self, strategy: tuple[jax.Device, ...]) -> Iterator[None]:
        # A distribution divides each batch evenly, but the last batch of a split may be smaller.
        distribution = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(distribution)

    def observe(self, strategy: tuple[jax.Device, ...]) -> dict[str, list[str] | str]:
        mesh = jax.make_mesh((len(strategy),), ("batch",), devices=strategy)
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
        rows = np.ones([8 * len(strategy), 512], np.float32)
        # This function skips devices of other processes.
        array = jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])
        result = jax.jit(lambda rows: rows @ jnp.ones([512, 10]))(array)
        return {"variable_devices": _names(array.devices()), "computation_devices": _names(result.devices())}

    def check_step(self, model: Any, input_shape: tuple[int, ...]) -> None:
        # Keras refuses to compile some layers for augmentation, although only XLA in TensorFlow cannot compile them.
        for layer in model._flatten_layers():
            layer.supports_jit = True
        groups = model.trainable_variables, model.non_trainable_variables
        state = [[_shape_of(variable.value) for variable in group] for group in groups]
        images = jax.ShapeDtypeStruct((_CHECKED_EXAMPLES, *input_shape), np.uint8)
        jax.eval_shape(partial(model.stateless_call, training=True), *state, images)

    def observe_training(self, model: Any) -> Callable[[], list[str]]:
        # The train function returns these arrays. Evaluation may move the other variables.
        trained = [*model.trainable_variables, *model.optimizer.variables]
        return lambda: _names(set().union(*(variable.value.devices() for variable in trained)))

    def computations(self, device: str, side: int, dtype: str) -> dict[str, Callable[[], object]]:
        local_device = _local_device(device)

        def normal(seed: int, *shape: int) -> jax.Array:
            return jax.device_put(jax.random.normal(jax.random.key(seed), shape).astype(dtype), local_device)

        def timed(compute: Callable[..., jax.Array], *operands: jax.Array) -> Callable[[], object]:
            # JAX computes on the device of the operands. The sum keeps the transfer short.
            summed = jax.jit(lambda *arrays: compute(*arrays).astype(jnp.float32).sum())
            return lambda: summed(*operands).block_until_ready()

        images = normal(1, IMAGES, SIZE, SIZE, CHANNELS_IN)
        kernel = normal(2, KERNEL, KERNEL, CHANNELS_IN, CHANNELS_OUT)
        layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        return {
            "matmul": timed(lambda matrix: matrix @ matrix, normal(0, side, side)),
            "convolution": timed(
                lambda lhs, rhs: jax.lax.conv_general_dilated(lhs, rhs, (1, 1), "SAME", **layout), images, kernel
            ),
        }

    def timed_step(self, model: Any, batch: Any, steps: int) -> Callable[[], float]:
        # The arrays are not committed to a device, so the train function may distribute them.
        batch = jax.block_until_ready(jax.tree.map(lambda array: jnp.asarray(np.asarray(array)), batch))

        def timed() -> float:
            # The train function deletes its arguments, so it gets copies.
            state = tuple([jnp.array(variable.value) for variable in group] for group in _state(model))
            jax.block_until_ready(state)
            started = time.perf_counter()
            _, state = model.train_function(state, iter([batch] * steps))
            jax.block_until_ready(state)
            return time.perf_counter() - started

        return timed

    def step_flops(self, model: Any, batch: Any) -> float | None:
        if _loops(model):
            return None
        # Only the CPU's client counts operations.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return (_lowered_step(model, batch).cost_analysis() or {}).get("flops")

    def step_bytes(self, model: Any, batch: Any) -> float | None:
        devices = set().union(*(variable.value.devices() for group in _state(model) for variable in group))
        if _loops(model) or len(devices) > 1:
            return None
        # Keras does not expose its compiled step. An error in this second compilation must not lose a trained run.
        with jax.default_device(*devices), contextlib.suppress(jax.errors.JaxRuntimeError):
            return (_lowered_step(model, batch).compile().cost_analysis() or {}).get("bytes accessed")
        return None

    def describe(self, strategy: tuple[jax.Device, ...]) -> dict[str, Any]:
        tf, precision = sys.modules.get("tensorflow"), str(jax.config.jax_default_matmul_precision)
        platforms = {jax.default_backend(), "cpu"}
        return {
            "strategy": "DataParallel" if len(strategy) > 1 else "SingleDevice",
            "logical_devices": _names(jax.local_devices()),
            "physical_devices": [_describe(device) for name in platforms for device in jax.local_devices(backend=name)],
            "versions": {
                "jax": jax.__version__,
                "jaxlib": jaxlib.__version__,
                "platform": jax.devices()[0].client.platform_version,
                "tensorflow": tf and tf.__version__,
            },
            "matmul_precision": TF32 if precision == "tensorfloat32" else precision,
            # XLA uses a thread per core.
            "threads": {},
        }

    def set_matmul_precision(self, precision: str) -> None:
        # JAX's default precision is lower than float32 on GPUs and TPUs.
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == TF32 else "highest")

    def peak_device_bytes(self, device: str) -> int | None:
        stats = None if device == "cpu" else _local_device(device).memory_stats()
        return stats and stats.get("peak_bytes_in_use")

    def profile(self, folder: Path) -> AbstractContextManager:
        return jax.profiler.trace(str(folder))


RUNTIME = Jax()


def _shape_of(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _devices(device: str) -> list[jax.Device]:
    """All devices of a kind. HardwareMismatchError: none is available."""
    try:
        if device == "gpu" and not machine.has_nvidia_driver():
            raise RuntimeError("no driver")
        return jax.devices(device)
    except RuntimeError as error:
        raise explain(device, error) from error


def _local_device(device: str) -> jax.Device:
    return next(item for item in _devices(device) if item.process_index == jax.process_index())


def _names(devices: Any) -> list[str]:
    return sorted(f"{device.platform}:{device.id}" for device in devices)


def _describe(device: jax.Device) -> dict:
    description = {"type": device.platform, "name": device.device_kind}
    if device.platform == "gpu":
        description |= {"compute_capability": str(device.compute_capability), "driver": machine.nvidia_driver()}
    return description


def _loops(model: Any) -> bool:
    """Whether the step has a loop. XLA would count its operations only once."""
    return any(isinstance(layer, keras.layers.RNN) and not layer.unroll for layer in model._flatten_layers())


def _lowered_step(model: Any, batch: Any) -> jax.stages.Lowered:
    """Keras's training step on the batch of all processes, lowered for XLA."""
    state = tuple([_shape_of(variable.value) for variable in group] for group in _state(model))
    global_batch = jax.tree.map(lambda array: np.concatenate([np.asarray(array)] * jax.process_count()), batch)
    return jax.jit(model.train_step).lower(state, jax.tree.map(_shape_of, global_batch))


def _state(model: Any) -> tuple[list, ...]:
    """Variables in the order of Keras's ``train_step`` on JAX."""
    weights = model.trainable_variables, model.non_trainable_variables
    return *weights, model.optimizer.variables, model.metrics_variables
