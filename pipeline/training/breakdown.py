"""Time and memory of a run.

The parts of the stage add up to its wall time (``Clock``). The step and the input stream are timed alone. The extra
time of a step in training is waiting for input, up to the time of a batch; the rest is other work on the machine. Both
timings are bounded: a step that takes too long is not timed, and the record has the reason.
"""

import logging
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline.errors import message
from pipeline.hardware.runtime import Runtime
from pipeline.networks.cpu_kernels import as_keras
from pipeline.runs.metrics import compilation_seconds, epoch_seconds
from pipeline.runs.record import STAGE_PARTS
from pipeline.stream import InputStream

# Limits of the timings.
STEP_BUDGET_SECONDS, INPUT_BUDGET_SECONDS = 1.5, 0.5
# Least number of calls, after one to warm up, and greatest number of steps.
_TIMED_CALLS, _TIMED_STEPS = 3, 96
_INPUT_WARM_UP_BATCHES = 20
_INPUT_TIMED_BATCHES = 200
# Lengths of the counted sequences. Some gradients of a single token are left out.
_SHORT, _LONG = 2, 3

_logger = logging.getLogger(__name__)


class Clock:
    """Adds the time to the part of the stage that was entered last."""

    def __init__(self, started: float) -> None:
        """``started``: the time.perf_counter at the start of the first part, ``startup``."""
        self._seconds = dict.fromkeys(STAGE_PARTS, 0.0)
        self._part, self._since = STAGE_PARTS[0], started

    def enter(self, part: str) -> None:
        """Add the time from now on to ``part``."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process of the same run."""
        for part in STAGE_PARTS:
            self._seconds[part] += seconds[part]

    def seconds(self) -> dict[str, float]:
        """Part → seconds until now."""
        self.enter(self._part)
        return dict(self._seconds)


def measure(
    model: keras.Model,
    stream: InputStream,
    rows: Sequence[Mapping[str, float]],
    compiling: Collection[int],
    *,
    runtime: Runtime,
    trained: bool,
    processes: int = 1,
) -> dict[str, float | str | None]:
    """The parts of a step's time. Trains ``model`` on, so call it last.

    Args:
        model: compiled.
        stream: the input stream of the train split.
        rows: the run's metrics, one row per epoch.
        compiling: the epochs in which the step was compiled.
        runtime: the backend's.
        trained: whether this process trained ``model`` on ``stream``. Otherwise the step is not compiled.
        processes: number of processes. The step of several is not timed alone.

    Returns:
        Per step ``step_seconds`` (in training, without the compiling epochs), ``step_flops``, ``step_bytes``,
        ``step_alone_seconds``, ``input_alone_seconds`` and ``input_wait_share`` from 0 to 1; for the run
        ``compilation_seconds``. Unknown values are None. ``not_measured`` is the reason of the last four.
    """
    seconds = epoch_seconds(rows, compiling)
    step = None if seconds is None else seconds / stream.steps_per_epoch
    found = {
        "step_seconds": step,
        "step_flops": None,
        "step_bytes": None,
        "step_alone_seconds": None,
        "input_alone_seconds": None,
        "input_wait_share": None,
        "not_measured": None,
        "compilation_seconds": compilation_seconds(rows, compiling),
    }
    if trained and processes == 1:
        plan, found["not_measured"] = _plan(model, stream, runtime, rows, step)
    else:
        plan, found["not_measured"] = None, _not_timed(processes if trained else 0)
    if trained:
        # Counting computes nothing.
        found["step_flops"] = step_flops(runtime, model, next(iter(stream.training(0))))
    if plan:
        _logger.info("timing a step and its input, each alone")
        found["step_bytes"] = runtime.step_bytes(model, next(iter(stream.training(0))))
        alone, input_alone = step_alone_seconds(model, stream, runtime, *plan), input_alone_seconds(stream)
        wait = None if step is None else input_wait_share(step=step, step_alone=alone, input_alone=input_alone)
        found |= {"step_alone_seconds": alone, "input_alone_seconds": input_alone, "input_wait_share": wait}
    else:
        _logger.info("the step is not timed alone: %s", found["not_measured"])
    return found


def _plan(
    model: keras.Model,
    stream: InputStream,
    runtime: Runtime,
    rows: Sequence[Mapping[str, float]],
    step: float | None,
) -> tuple[tuple[int, int] | None, str | None]:
    """Arguments of step_alone_seconds, or the reason to skip it. ``step`` is None if each epoch compiled."""
    if step is None:
        # If a step with its compilation is within the limit, try one.
        longest = epoch_seconds(rows, ()) / stream.steps_per_epoch
        if longest > STEP_BUDGET_SECONDS:
            return None, _too_long(longest, compiling=True)
        step = step_alone_seconds(model, stream, runtime, calls=0, steps=1)
    plan = plan_calls(step, model.steps_per_execution)
    return plan, None if plan else _too_long(step)


def plan_calls(step_seconds: float, steps_per_execution: int) -> tuple[int, int] | None:
    """Calls of the train function after one to warm up, and steps per call. None if they exceed the limit."""
    affordable = int(STEP_BUDGET_SECONDS / step_seconds)
    steps = min(steps_per_execution, affordable // (1 + _TIMED_CALLS))
    if steps < 1:
        return None
    return min(affordable // steps - 1, max(_TIMED_CALLS, _TIMED_STEPS // steps)), steps


def input_wait_share(*, step: float, step_alone: float, input_alone: float) -> float:
    """Share of a step, from 0 to 1, spent on waiting for its batch. Arguments are seconds per step and batch."""
    return round(max(0.0, min(step - step_alone, input_alone)) / step, 4)


def step_alone_seconds(model: keras.Model, stream: InputStream, runtime: Runtime, calls: int, steps: int) -> float:
    """Seconds of a step on one given batch, by the train function without ``fit``. Trains the trained ``model`` on.

    ``steps`` may be any number up to the steps of one execution.
    """
    timed = runtime.timed_step(model, next(iter(stream.training(0))), steps)
    began, seconds = time.perf_counter(), []
    for _ in range(1 + calls):
        seconds.append(timed())
        # The machine may have become slower since training.
        if time.perf_counter() - began > STEP_BUDGET_SECONDS:
            break
    return statistics.median(seconds[1:] or seconds) / steps


def input_alone_seconds(stream: InputStream) -> float:
    """Seconds per batch of the running stream alone."""
    warm_up = min(_INPUT_WARM_UP_BATCHES, stream.steps_per_epoch - 1)
    batches = iter(stream.training(0).take(warm_up + _INPUT_TIMED_BATCHES))
    began = started = time.perf_counter()
    taken = 0
    for number, _ in enumerate(batches, start=1):
        now = time.perf_counter()
        if number == warm_up:
            started, taken = now, 0
            continue
        taken += 1
        if now - began > INPUT_BUDGET_SECONDS:
            break
    return (time.perf_counter() - started) / taken


def step_flops(runtime: Runtime, model: keras.Model, batch: Any) -> float | None:
    """Operations of a compiled model's step on a batch, (inputs, labels). None if they cannot be counted.

    Both backends count a loop once. The count of a recurrent model grows linearly with the sequence: it is counted on
    short unrolled sequences and extrapolated, without the optimizer.
    """
    # Other CPU kernels would give other counts on another machine.
    with as_keras():
        if not any(isinstance(layer, keras.layers.RNN) for layer in model.layers):
            return runtime.step_flops(model, batch)
        if not isinstance(model, keras.Sequential):
            return None
        inputs, labels = (np.asarray(part) for part in batch)
        counted = [
            runtime.step_flops(_unrolled(model, inputs[:, :length]), (inputs[:, :length], labels[:, :length]))
            for length in (_SHORT, _LONG)
        ]
    if None in counted:
        return None
    short, long = counted
    return short + (inputs.shape[1] - _SHORT) * (long - short)


def _unrolled(model: keras.Model, inputs: np.ndarray) -> keras.Model:
    """The same layers for sequences of this length, without a loop."""

    def copied(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        if isinstance(layer, keras.layers.RNN):
            config |= {"unroll": True}
        return type(layer).from_config(config)

    found = keras.Sequential([keras.Input(inputs.shape[1:], dtype=inputs.dtype.name), *map(copied, model.layers)])
    found.compile(keras.optimizers.SGD(), model.loss, jit_compile=False)
    found.optimizer.build(found.trainable_variables)
    return found


def reset_peak_memory(runtime: Runtime) -> None:
    """Reset the peak memory, because earlier stages ran in the same process. The host's can be reset on Linux only."""
    runtime.reset_peak_memory()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_host_bytes() -> int | None:
    """Peak memory of this process since the reset. None on other systems than Linux."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), None)


@message
def _not_timed(processes: int) -> str:
    if processes:
        return f"{processes} processes would have to time it together"
    return "no epoch was left to train, and the step is not compiled"


@message
def _too_long(step_seconds: float, *, compiling: bool = False) -> str:
    return f"a step took {step_seconds:.1f} s{' with its compilation' if compiling else ''}, too long to repeat it"
