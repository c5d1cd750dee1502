"""Scenarios: runs that share everything but their seed, as one row of means and standard deviations.

"Everything" is what the runs were made from (settings, records, code and library versions, by the manifest) and what
they found (hardware, precision): figures of two kinds of hardware or of two versions of the code are never averaged.
The host is a label: two machines of one kind repeat one another. What came from a remote was not measured here, and
stands in rows of its own.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.runs.metrics import compiling_epochs, epoch_seconds
from pipeline.runs.record import names

# What comes of a seed, whatever the machine.
_OF_A_DRAW = ("val_accuracy", "validation_accuracy", "val_loss", "val_tta_accuracy", "validation_tta_accuracy")


def shared_names() -> tuple[str, ...]:
    """What the runs of a scenario have in common."""
    return ("made_from", "code", "fetched_from", *names(repeated=False))


def scenarios(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups runs into scenarios, in the order of the first run of each.

    Returns:
        For each the fields of shared_names; `seeds`, `fingerprints` and `hostnames` of its runs and where they
        `resumed`, and the `repetitions` of each (see repetitions.py); `finished_at` and `mismatch` of the first; and
        `{"mean", "deviation"}` of `train_seconds`, `examples_per_second`, `val_accuracy`, `validation_accuracy`, both
        also with test-time augmentation, `val_loss`, and of `epoch_seconds` and `step_seconds`, which leave compiling
        epochs out. The deviation is the sample standard deviation, None for a single run.
    """
    shared = shared_names()
    return [_scenario(group, shared) for group in grouped(runs, shared)]


def grouped(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[list[Mapping[str, Any]]]:
    """Rows that agree in all the fields named, group by group, each in its order."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        # As JSON: a field may hold an object, which is no key of a dict.
        groups.setdefault(json.dumps([row[name] for name in names], sort_keys=True), []).append(row)
    return list(groups.values())


def _scenario(runs: Sequence[Mapping[str, Any]], shared: Sequence[str]) -> dict[str, Any]:
    in_order = sorted(runs, key=lambda run: run["seed"])
    # A run repeated on another host is measured anew but computes the same: no second draw of its accuracy.
    once = {run["fingerprint"]: run for run in reversed(runs)}.values()
    return {
        **{name: runs[0][name] for name in (*shared, "mismatch", "finished_at")},
        **{f"{name}s": [run[name] for run in in_order] for name in ("seed", "fingerprint", "hostname")},
        "repetitions": [run["repetition"] for run in in_order],
        "resumed": [one for run in runs for one in run["resumed"]],
        **{name: mean_and_deviation([run[name] for run in runs]) for name in ("train_seconds", "examples_per_second")},
        **{name: mean_and_deviation([run[name] for run in once]) for name in _OF_A_DRAW},
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
    return epoch_seconds(run["curves"], compiling_epochs(run))


def _step_seconds(run: Mapping[str, Any]) -> float | None:
    seconds = _epoch_seconds(run)
    return seconds / run["steps_per_epoch"] if seconds is not None and run["steps_per_epoch"] else None
