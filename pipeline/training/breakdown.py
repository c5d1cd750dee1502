"""Breakdown: where a run's time and memory went (… → training → metrics → report).

A step of training takes a batch from the input stream and computes. Whether it waited is not seen from outside, so each
is timed alone: the stream with nothing behind it, the step on one batch that is there already. What the step takes in
training beyond what it takes alone is waiting, but for no longer than the stream takes for a batch: the rest is other
work on the machine, which slows one timing and not the other.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import tensorflow as tf

from pipeline.stream import InputStream

# Of the step timed alone: at least so many calls, each of as many steps as one execution has, and so many steps.
_TIMED_CALLS, _TIMED_STEPS = 3, 32
_INPUT_WARM_UP_BATCHES = 20
_INPUT_TIMED_BATCHES = 200


def measure(
    model: keras.Model, stream: InputStream, rows: Sequence[Mapping[str, float]], checkpoint_seconds: Sequence[float]
) -> dict[str, float | None]:
    """Seconds by part; trains ``model`` on, so nothing may be wanted of it afterwards.

    Args:
        model: compiled, and trained on ``stream``.
        stream: the input stream of the train split.
        rows: the run's metrics, one row an epoch.
        checkpoint_seconds: time of each checkpoint saved.

    Returns:
        Per step ``step_seconds`` (in training; without the first, compiling epoch where there are more),
        ``step_alone_seconds``, ``input_alone_seconds``; ``input_wait_share`` from 0 to 1; of the whole run
        ``evaluation_seconds``, ``checkpoint_seconds`` and ``compilation_seconds``, None where it cannot be told.
    """
    epochs = [row["train_seconds"] for row in rows]
    step = statistics.median(epochs[1:] or epochs) / stream.steps_per_epoch
    step_alone, input_alone = step_alone_seconds(model, stream), input_alone_seconds(stream)
    return {
        "step_seconds": step,
        "step_alone_seconds": step_alone,
        "input_alone_seconds": input_alone,
        "input_wait_share": input_wait_share(step=step, step_alone=step_alone, input_alone=input_alone),
        "compilation_seconds": compilation_seconds(epochs),
        "evaluation_seconds": sum(row["evaluation_seconds"] for row in rows),
        "checkpoint_seconds": sum(checkpoint_seconds),
    }


def compilation_seconds(epochs: Sequence[float]) -> float | None:
    """What the first epoch took longer than the others; None where there is one alone, or the others were no faster."""
    longer = epochs[0] - statistics.median(epochs[1:] or epochs)
    return longer if longer > 0 else None


def input_wait_share(*, step: float, step_alone: float, input_alone: float) -> float:
    """The share of a step, from 0 to 1, that was spent waiting for its batch; seconds a step and a batch."""
    return round(max(0.0, min(step - step_alone, input_alone)) / step, 4)


def reset_peak_memory() -> None:
    """Let the peaks count from here: earlier stages and runs were in the same process.

    The host's on Linux only; elsewhere it counts them.
    """
    for gpu in tf.config.list_logical_devices("GPU"):
        tf.config.experimental.reset_memory_stats(gpu.name.removeprefix("/device:"))
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_host_bytes() -> int | None:
    """The most memory this process held since the reset; None where Linux does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), None)


def peak_device_bytes(effective_device: str) -> int | None:
    """The most memory the first accelerator held; None for a CPU, whose memory is the host's, and where unknown."""
    if effective_device != "gpu":
        return None
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def step_alone_seconds(model: keras.Model, stream: InputStream) -> float:
    """Seconds for a step with its batch at hand: the function fit calls, without what fit does around it.

    ``model`` is compiled, and trained on by this.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    batch = tf.data.Dataset.from_tensors(next(iter(stream.training(0)))).repeat().with_options(options)
    batches = iter(model.distribute_strategy.experimental_distribute_dataset(batch))
    model.make_train_function()
    seconds = []
    # The first call compiles, if nothing was fitted before.
    for _ in range(1 + max(_TIMED_CALLS, _TIMED_STEPS // model.steps_per_execution)):
        started = time.perf_counter()
        # A step is done when its figures can be read.
        float(model.train_function(batches)["loss"])
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:]) / model.steps_per_execution


def input_alone_seconds(stream: InputStream) -> float:
    """Seconds for a batch of the stream with nothing behind it, once it runs."""
    warm_up = min(_INPUT_WARM_UP_BATCHES, stream.steps_per_epoch - 1)
    batches = iter(stream.training(0).take(warm_up + _INPUT_TIMED_BATCHES))
    for _ in range(warm_up):
        next(batches)
    started = time.perf_counter()
    taken = sum(1 for _ in batches)
    return (time.perf_counter() - started) / taken
