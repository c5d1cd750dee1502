"""Breakdown: where a run's time and memory went (… → training → metrics → report).

Each second of the stage belongs to one part (Clock), so that the parts add up. What a step of training spends on
waiting for its batch is not seen from outside: the input stream is timed with nothing behind it, and the step on one
batch that is there already. What the step takes in training beyond what it takes alone is waiting, but for no longer
than the stream takes for a batch: the rest is other work on the machine, which slows one timing and not the other.

Both timings are bounded. A step that would take too long to repeat is not timed, and the run says so.
"""

import logging
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import keras

from pipeline.hardware.runtime import Runtime
from pipeline.runs.metrics import compilation_seconds, epoch_seconds
from pipeline.runs.record import STAGE_PARTS
from pipeline.stream import InputStream
from pipeline.training import words
from pipeline.training.operations import step_flops

# What timing a step, and timing the input, may take.
STEP_BUDGET_SECONDS, INPUT_BUDGET_SECONDS = 1.5, 0.5
# Of the step timed alone, after one call to warm up: at least so many calls, and no more steps than it takes to know.
_TIMED_CALLS, _TIMED_STEPS = 3, 96
_INPUT_WARM_UP_BATCHES = 20
_INPUT_TIMED_BATCHES = 200

_logger = logging.getLogger(__name__)


class Clock:
    """Adds each second to the part of the stage that it belongs to: the one entered last."""

    def __init__(self, started: float) -> None:
        """``started``: when the first part, ``startup``, began, by time.perf_counter."""
        self._seconds = dict.fromkeys(STAGE_PARTS, 0.0)
        self._part, self._since = STAGE_PARTS[0], started

    def enter(self, part: str) -> None:
        """From now on the time is of ``part``."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now

    def add(self, seconds: Mapping[str, float]) -> None:
        """Count what an earlier process took for the same run."""
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
    """How a step's time divides; trains ``model`` on, so nothing may be wanted of it afterwards.

    Args:
        model: compiled.
        stream: the input stream of the train split.
        rows: the run's metrics, one row an epoch.
        compiling: the epochs in which the step was compiled.
        runtime: the backend's.
        processes: how many trained it; the step of several is not timed alone.
        trained: whether this process trained ``model`` on ``stream``: else timing its step would compile it first.

    Returns:
        Per step ``step_seconds`` (in training, without the compiling epochs; None where each one compiled),
        ``step_flops`` and ``step_bytes`` (None where they cannot be counted), ``step_alone_seconds``,
        ``input_alone_seconds``, and ``input_wait_share`` from 0 to 1; the last four None where ``not_measured`` says
        why, the share also where ``step_seconds`` is. Of the run ``compilation_seconds``, None where it cannot be told.
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
    if trained and processes > 1:
        plan, found["not_measured"] = None, words.several_processes(processes)
    elif trained:
        plan, found["not_measured"] = _plan(model, stream, runtime, rows, step)
    else:
        plan, found["not_measured"] = None, words.NOTHING_TRAINED
    if trained:
        # Of a step that takes too long to repeat too: nothing is computed for it.
        found["step_flops"] = step_flops(runtime, model, next(iter(stream.training(0))))
    if plan:
        _logger.info("timing a step and its input, each alone")
        # It compiles the step, as the first of training did.
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
    """The calls of step_alone_seconds, and why there are none; ``step`` None where each epoch compiled."""
    if step is None:
        # No step takes longer than with the compilation; where even that fits, one is tried.
        longest = epoch_seconds(rows, ()) / stream.steps_per_epoch
        if longest > STEP_BUDGET_SECONDS:
            return None, words.too_long_compiling(longest)
        step = step_alone_seconds(model, stream, runtime, calls=0, steps=1)
    plan = plan_calls(step, model.steps_per_execution)
    return plan, None if plan else words.too_long(step)


def plan_calls(step_seconds: float, steps_per_execution: int) -> tuple[int, int] | None:
    """How often to call the train function, and for how many steps each time; None where the budget is too small.

    One call more than asked for warms up.
    """
    affordable = int(STEP_BUDGET_SECONDS / step_seconds)
    steps = min(steps_per_execution, affordable // (1 + _TIMED_CALLS))
    if steps < 1:
        return None
    return min(affordable // steps - 1, max(_TIMED_CALLS, _TIMED_STEPS // steps)), steps


def input_wait_share(*, step: float, step_alone: float, input_alone: float) -> float:
    """The share of a step, from 0 to 1, that was spent waiting for its batch; seconds a step and a batch."""
    return round(max(0.0, min(step - step_alone, input_alone)) / step, 4)


def step_alone_seconds(model: keras.Model, stream: InputStream, runtime: Runtime, calls: int, steps: int) -> float:
    """Seconds for a step with its batch at hand: the function fit calls, without what fit does around it.

    ``model`` has been trained, and may be trained on by this. Its function takes fewer steps where the batches end
    sooner, so ``steps`` may be any number up to those of one execution.
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
    """Seconds for a batch of the stream with nothing behind it, once it runs."""
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


def reset_peak_memory(runtime: Runtime) -> None:
    """Let the peaks count from here: earlier stages and runs were in the same process.

    The host's on Linux only; elsewhere it counts them.
    """
    runtime.reset_peak_memory()
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
