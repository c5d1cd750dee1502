"""Metrics derived from the measurements of a run.

They are FLOP utilization, and the cost of reaching an accuracy. Model FLOP utilization follows
Chowdhery et al. 2022 (PaLM). It divides the operations of a step by its seconds and by the speed of the device.
Backends that count operations differ by about a tenth (docs/concepts/receipt.md).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.problems.results import results_of
from pipeline.report.data.reading import Run

#: Target accuracies on CIFAR-10. The last is DAWNBench's (Coleman et al. 2017).
GOALS = (0.90, 0.92, 0.94)

# Dense FLOP/s by precision, from NVIDIA's data sheets (float32 without tensor cores) and Google Cloud's TPU pages.
# Patterns match whole names, because an "L40S" is no "L4" and PCIe cards are slower than SXM or HBM3 modules.
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
    """The epoch that reached a test accuracy, and the training ``seconds`` and ``flops`` up to its end.

    Unknown values are None. ``with_views`` marks a selected epoch that reached the goal with test-time augmentation.
    """

    accuracy: float
    epoch: int
    with_views: bool
    seconds: float | None
    flops: float | None


def utilization(run: Run) -> dict[str, float]:
    """Return the utilization relative to the ``probe`` and to the ``published`` speed. Empty if not measured."""
    breakdown, probe, on_cpu = run.time_breakdown, (run.receipt or {}).get("probe"), run.effective_device == "cpu"
    if not breakdown or not breakdown.step_flops or not breakdown.step_seconds or not isinstance(probe, Mapping):
        return {}
    # The replicas of a host share its CPU. Processes may run on several hosts.
    if on_cpu and run.processes > 1:
        return {}
    probe_speeds = [
        speed
        for name, speed in probe.items()
        if name.endswith("_flops_per_second") and not name.startswith("host_") and isinstance(speed, int | float)
    ]
    devices = 1 if on_cpu else max(1, run.num_replicas)
    peaks = {"probe": max(probe_speeds, default=0), "published": 0 if on_cpu else _published(run)}
    speed = breakdown.step_flops / breakdown.step_seconds
    return {name: speed / (peak * devices) for name, peak in peaks.items() if peak}


def _published(run: Run) -> float:
    # A run lists the names of all its devices.
    devices = set(str(run.device_name or "").split(", "))
    matches = [peaks for name, peaks in _PUBLISHED.items() for device in devices if re.fullmatch(name, device)]
    return matches[0].get(run.precision, 0) if len(devices) == len(matches) == 1 else 0


def to_accuracy(run: Run) -> list[Goal]:
    """Return the first epoch that reached each goal, or the selected epoch if test-time augmentation reached it."""
    if not results_of(run.problem).has_accuracy_goals or not run.curves:
        return []
    step_flops = run.time_breakdown and run.time_breakdown.step_flops
    selected = run.kept_epoch or run.curves[-1].epoch
    goals = []
    for goal in GOALS:
        # An accuracy of 0.9 is slightly smaller in float32.
        least = goal - 1e-6
        reached = [row.epoch for row in run.curves if (row.test_accuracy or 0) >= least]
        if not reached and (run.test_tta_accuracy or 0) < least:
            continue
        epoch = reached[0] if reached else selected
        seconds = [row.train_seconds for row in run.curves if row.epoch <= epoch]
        flops = step_flops * run.steps_per_epoch * epoch if step_flops and run.steps_per_epoch else None
        goals.append(Goal(goal, epoch, not reached, None if None in seconds else sum(seconds), flops))
    return goals
