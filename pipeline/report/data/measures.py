"""Figures derived from what a run measured: utilization, cost of an accuracy, and cost of stored images.

Model FLOP utilization is that of Chowdhery et al. 2022 (PaLM): operations of a step over its seconds and the speed of
the device. Operations do not depend on the machine. They differ by about a tenth between the backends that count them
(docs/concepts/receipt.md).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.problems.results import results_of
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import facts, grouped
from pipeline.runs.record import FINISHED

#: What CIFAR-10 is trained to: DAWNBench's goal (Coleman et al. 2017), and two on the way there.
GOALS = (0.90, 0.92, 0.94)

# Accuracies are float32, in which nine of ten images are a little less than 0.9.
_ROUNDING = 1e-6

# What the stream's speed depends on, apart from the records.
_HOW = ("dataset", "records", "input_in_memory", "augment", "effective_device", "device_name", "granted_cores")
_MAX_ROWS = 12

# Dense FLOP/s of a chip or card by precision, as their makers publish them: NVIDIA's data sheets (float32:
# without the matrix units), Google Cloud's pages of TPU versions. A name is that of the whole device:
# an "L40S" is no "L4", and cards of one generation for PCIe are slower than the modules (SXM, HBM3).
_PUBLISHED = {
    r"NVIDIA H200": {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12},
    r"NVIDIA H100 (80GB HBM3|SXM.*)": {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12},
    r"(NVIDIA )?A100[- ].*": {"bfloat16": 312e12, "tf32": 156e12, "float32": 19.5e12},
    r"NVIDIA L4": {"bfloat16": 121e12, "tf32": 60e12, "float32": 30.3e12},
    r"(Tesla|NVIDIA) T4": {"float32": 8.1e12},
    r"TPU v6 lite": {"bfloat16": 918e12},
    r"TPU v5 lite": {"bfloat16": 197e12},
    r"TPU v5p?": {"bfloat16": 459e12},
    r"TPU v4": {"bfloat16": 275e12},
}


@dataclass(frozen=True)
class Goal:
    """The epoch that reached a test accuracy, with training ``seconds`` and ``flops`` to its end, None if unknown.

    ``with_views``: it is the kept epoch, which reached the goal with test-time augmentation.
    """

    accuracy: float
    epoch: int
    with_views: bool
    seconds: float | None
    flops: float | None


@dataclass(frozen=True)
class Encoding:
    """Cost of a format of the images on a kind of machine. None where it was not measured.

    ``stream_examples_per_second``: of the stream alone.
    """

    run: Run
    stream_examples_per_second: float | None
    input_wait_share: float | None

    def to_json(self) -> dict[str, Any]:
        """Fields of the run, and the others."""
        speeds = {name: value for name, value in vars(self).items() if name != "run"}
        return facts(self.run, (*_HOW, "fingerprint", "model")) | speeds


def utilization(run: Run) -> dict[str, float]:
    """Share of the speed that the ``probe`` reached, and of the ``published`` one. Empty if it was not measured."""
    parts, receipt = run.time_breakdown, run.receipt or {}
    probe = receipt.get("probe")
    if not parts or not parts.step_flops or not parts.step_seconds or not isinstance(probe, Mapping):
        return {}
    reached = [
        speed
        for name, speed in probe.items()
        if name.endswith("_flops_per_second") and not name.startswith("host_") and isinstance(speed, int | float)
    ]
    on_cpu, devices = run.effective_device == "cpu", max(1, run.num_replicas)
    if on_cpu:
        # The replicas of a host share its CPU.
        processes = receipt.get("processes")
        seen = [one for one in processes if isinstance(one, Mapping)] if isinstance(processes, list) else []
        devices = len({str(one.get("hostname")) for one in seen}) or 1
    peaks = {"probe": max(reached, default=0), "published": 0 if on_cpu else _published(run)}
    speed = parts.step_flops / parts.step_seconds
    return {name: speed / (peak * devices) for name, peak in peaks.items() if peak}


def _published(run: Run) -> float:
    # The name contains that of each device.
    devices = set(str(run.device_name or "").split(", "))
    found = [peaks for name, peaks in _PUBLISHED.items() for device in devices if re.fullmatch(name, device)]
    return found[0].get(run.precision, 0) if len(devices) == len(found) == 1 else 0


def to_accuracy(run: Run) -> list[Goal]:
    """The first epoch that reached each goal, or the kept epoch if it did with test-time augmentation."""
    if not results_of(run.problem).has_accuracy_goals or not run.curves:
        return []
    step_flops = run.time_breakdown and run.time_breakdown.step_flops
    kept = run.kept_epoch or run.curves[-1].epoch
    found = []
    for goal in GOALS:
        reached = [row.epoch for row in run.curves if _reached(row.test_accuracy, goal)]
        epoch = reached[0] if reached else kept
        rows = [row for row in run.curves if row.epoch <= epoch]
        if not reached and not (_reached(run.test_tta_accuracy, goal) and rows and rows[-1].epoch == kept):
            continue
        seconds = [row.train_seconds for row in rows]
        flops = step_flops * run.steps_per_epoch * epoch if step_flops and run.steps_per_epoch else None
        found.append(Goal(goal, epoch, not reached, None if None in seconds else sum(seconds), flops))
    return found


def _reached(accuracy: float | None, goal: float) -> bool:
    return (accuracy or 0) >= goal - _ROUNDING


def encodings(runs: Sequence[Run], current: Sequence[str]) -> list[Encoding]:
    """The cost of each format of the current datasets on each kind of machine, from the newest of the runs.

    The one with the most bytes per example is the first.
    """
    finished = [run for run in runs if run.status == FINISHED and run.records is not None]
    datasets = {run.dataset for run in finished if run.fingerprint in current}
    found = []
    for run, *_ in grouped([run for run in finished if run.dataset in datasets], _HOW)[:_MAX_ROWS]:
        times = run.time_breakdown
        seconds = times and times.input_alone_seconds
        speed = run.global_batch_size / seconds if seconds else None
        found.append(Encoding(run, speed, times and times.input_wait_share))
    return sorted(found, key=lambda one: -one.run.records.total_bytes / max(1, one.run.records.num_examples))
