"""Benchmarks of the training step and the input stream, and peak memory.

In training, a step takes longer than alone. The extra time counts as waiting for input, up to the time of a batch.
Both benchmarks have a time limit. If a step takes too long, the record has the reason instead of a time.
"""

import logging
import statistics
import time
from pathlib import Path

import keras

from pipeline.errors import message
from pipeline.hardware.runtime import Runtime
from pipeline.models.cpu_kernels import without_fast_kernels
from pipeline.runs.metrics import compilation_seconds, epoch_seconds
from pipeline.settings.training import HEAD
from pipeline.streams.tf_data import InputStream
from pipeline.training.setup import TrainingSetup

# Time limits of the benchmarks.
STEP_BUDGET_SECONDS, INPUT_BUDGET_SECONDS = 1.5, 0.5
# Minimum number of calls after a warm-up call, and target number of steps within the time limit.
_TIMED_CALLS, _TIMED_STEPS = 3, 96
_INPUT_WARM_UP_BATCHES, _INPUT_BATCHES = 20, 220

_logger = logging.getLogger(__name__)


def measure(setup: TrainingSetup) -> dict[str, float | str | None]:
    """Benchmark the training step and the input stream. The benchmark trains the model.

    Returns fields of ``TimeBreakdown``. Seconds and counts are per step, without the epochs that compiled, and
    ``compilation_seconds`` is per run. Unknown values are None. ``not_measured`` is the reason to time no step alone.
    """
    model, stream, runtime, history = setup.model, setup.stream, setup.placement.runtime, setup.history
    rows, compiling, steps = history.rows, history.compiling(), 0
    seconds = epoch_seconds(rows, compiling)
    step = None if seconds is None else seconds / stream.steps_per_epoch
    names = ("step_flops", "step_bytes", "step_alone_seconds", "input_alone_seconds", "input_wait_share")
    fields = dict.fromkeys(names) | {"step_seconds": step, "compilation_seconds": compilation_seconds(rows, compiling)}
    if history.restored == len(rows) or setup.fine_tune == HEAD:
        reason = _reason()
    else:
        batch = next(iter(stream.training(0)))
        # Counting runs no step, so it suits several processes too. CPU kernels differ between machines.
        with without_fast_kernels():
            fields["step_flops"] = runtime.step_flops(model, batch)
        with_compilation = epoch_seconds(rows, ()) / stream.steps_per_epoch
        if setup.group.processes > 1:
            reason = _reason(processes=setup.group.processes)
        elif step is None and with_compilation > STEP_BUDGET_SECONDS:
            reason = _reason(with_compilation, compiling=True)
        else:
            # Training may have measured no step without compilation.
            one_step = step or step_alone_seconds(model, stream, runtime, steps=1, calls=0)
            steps, reason = steps_per_call(one_step, model.steps_per_execution), _reason(one_step)
    if not steps:
        _logger.info("Benchmark skipped: %s", reason)
        return fields | {"not_measured": reason}
    _logger.info("Benchmarking the training step and the input pipeline.")
    calls = max(_TIMED_CALLS, _TIMED_STEPS // steps)
    fields["step_bytes"] = runtime.step_bytes(model, batch)
    fields["step_alone_seconds"] = alone = step_alone_seconds(model, stream, runtime, steps, calls)
    fields["input_alone_seconds"] = input_alone = input_alone_seconds(stream)
    if step is not None:
        fields["input_wait_share"] = input_wait_share(step=step, step_alone=alone, input_alone=input_alone)
    return fields | {"not_measured": None}


def steps_per_call(step_seconds: float, steps_per_execution: int) -> int:
    """Steps per call that keep the minimum number of calls within the time limit. 0 if none does."""
    return min(steps_per_execution, int(STEP_BUDGET_SECONDS / step_seconds) // (1 + _TIMED_CALLS))


def input_wait_share(*, step: float, step_alone: float, input_alone: float) -> float:
    """Share of a step, from 0 to 1, spent on waiting for its batch. Arguments are seconds per step or batch."""
    return round(max(0.0, min(step - step_alone, input_alone)) / step, 4)


def step_alone_seconds(model: keras.Model, stream: InputStream, runtime: Runtime, steps: int, calls: int) -> float:
    """Median seconds of a step on one batch, from at most ``calls`` calls after a warm-up. The steps train ``model``.

    ``steps`` per call may be any number up to ``model.steps_per_execution``. ``model`` must have been trained.
    """
    timed = runtime.timed_step(model, next(iter(stream.training(0))), steps)
    started, seconds = time.perf_counter(), []
    for _ in range(1 + calls):
        seconds.append(timed())
        if time.perf_counter() - started > STEP_BUDGET_SECONDS:
            break
    return statistics.median(seconds[1:] or seconds) / steps


def input_alone_seconds(stream: InputStream) -> float:
    """Seconds per batch of the running input stream, without training."""
    times = [time.perf_counter()]
    for _ in stream.training(0).take(_INPUT_BATCHES):
        times.append(time.perf_counter())
        if times[-1] - times[0] > INPUT_BUDGET_SECONDS:
            break
    # Early batches wait for the start of the stream.
    warm_up = min(_INPUT_WARM_UP_BATCHES, (len(times) - 1) // 2)
    return (times[-1] - times[warm_up]) / (len(times) - 1 - warm_up)


def peak_host_bytes() -> int | None:
    """Peak memory of this process in bytes since the start of the training. None if the system is not Linux."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), None)


@message
def _reason(step_seconds: float = 0, *, compiling: bool = False, processes: int = 0) -> str:
    if step_seconds:
        return f"a step took {step_seconds:.1f} s{' with compilation' if compiling else ''}, too long to repeat it"
    if processes:
        return f"a benchmark runs in one process, and the run has {processes}"
    return "this process trained no epoch, so the step is not compiled"
