"""Scenarios: runs that share everything but their seed, as one row of means and standard deviations.

"Everything" is what the runs were made from (settings, records, code and library versions, by the manifest) and what
they found (device, host, precision): figures of two hosts or of two versions of the code are never averaged.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.runs import throughput

#: What the runs of a scenario have in common.
SHARED = (
    "made_from",
    "status",
    "dataset",
    "requested_dataset",
    "dataset_verified",
    "content_digests",
    "model",
    "recipe",
    "epochs",
    "global_batch_size",
    "steps_per_epoch",
    "requested_device",
    "effective_device",
    "device_verified",
    "device_name",
    "num_replicas",
    "hostname",
    "on_mismatch",
    "requested_precision",
    "precision",
    "requested_jit_compile",
    "jit_compile",
    "steps_per_execution",
    "input_in_memory",
)


def scenarios(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups runs into scenarios, in the order of the first run of each.

    Returns:
        For each the fields of SHARED; `seeds` and `fingerprints` of its runs and where they `resumed`; `finished_at`
        and `mismatch` of the first; and `{"mean", "deviation"}` of `train_seconds`, `examples_per_second`,
        `val_accuracy`, and of `epoch_seconds` and `step_seconds`, which leave compiling epochs out. The deviation is
        the sample standard deviation, None for a single run.
    """
    return [_scenario(group) for group in grouped(runs, SHARED)]


def grouped(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Mapping[str, Any]]]:
    """Rows that agree in all the fields named, group by group, each in its order."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        # As JSON: a field may hold an object, which is no key of a dict.
        groups.setdefault(json.dumps([row[name] for name in names], sort_keys=True), []).append(row)
    return list(groups.values())


def _scenario(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    measured = ("train_seconds", "examples_per_second", "val_accuracy")
    return {
        **{name: runs[0][name] for name in (*SHARED, "mismatch", "finished_at")},
        "seeds": sorted(run["seed"] for run in runs),
        "fingerprints": [run["fingerprint"] for run in runs],
        "resumed": [one for run in runs for one in run["resumed"]],
        **{name: mean_and_deviation([run[name] for run in runs]) for name in measured},
        "epoch_seconds": mean_and_deviation([_epoch_seconds(run) for run in runs]),
        "step_seconds": mean_and_deviation([_step_seconds(run) for run in runs]),
    }


def mean_and_deviation(values: Sequence[float | None]) -> dict[str, float | None]:
    """Both None where a value is missing or not finite: the mean of the rest would flatter a run that diverged."""
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return {"mean": None, "deviation": None}
    try:
        deviation = float(statistics.stdev(values)) if len(values) > 1 else None
        return {"mean": float(statistics.mean(values)), "deviation": deviation}
    except OverflowError:
        return {"mean": None, "deviation": None}


def _epoch_seconds(run: Mapping[str, Any]) -> float | None:
    return throughput.epoch_seconds(run["curves"], throughput.compiling_epochs(run))


def _step_seconds(run: Mapping[str, Any]) -> float | None:
    seconds = _epoch_seconds(run)
    return seconds / run["steps_per_epoch"] if seconds is not None and run["steps_per_epoch"] else None
