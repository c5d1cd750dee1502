"""Rows of the scoreboard: runs that differ in their seed alone, their speed-ups, and their times by batch.

Figures of two kinds of hardware or of two versions of the code are never averaged. The host is a label. Runs from a
remote were not measured here and have rows of their own.

A speed-up needs two rows that agree in all compared fields, code and library versions, that differ in hardware, and
that were measured on verified, requested hardware and on real data.
"""

import json
import math
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pipeline.report.formats import Run, hosts, is_fallback, plain
from pipeline.runs.metrics import compiling_epochs, epoch_seconds
from pipeline.runs.record import FINISHED, SKIPPED, names

# Fields whose names are not their words.
_WORDS = {
    "computation_flags": "environment variables of computation",
    "content_digests": "dataset content",
    "global_batch_size": "global batch",
    "replicas": "requested replicas",
    "requested_jit_compile": "requested XLA",
    "code": "code or library versions",
}
# What comes of a seed, whatever the machine.
_OF_A_DRAW = ("val_accuracy", "validation_accuracy", "val_loss", "val_tta_accuracy", "validation_tta_accuracy")


def shared_names() -> tuple[str, ...]:
    """What the runs of a scenario have in common."""
    return ("made_from", "code", "fetched_from", *names(repeated=False))


def scenarios(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Group runs into rows, in the order of the first run of each.

    A row has the fields of `shared_names`, `finished_at` and `mismatch` of its first run, lists of its runs' facts, and
    `{"mean", "deviation"}` of their figures. `epoch_seconds` and `step_seconds` omit compiling epochs. The deviation is
    the sample standard deviation, None for a single run.
    """
    shared = shared_names()
    return [_scenario(group, shared) for group in grouped(runs, shared)]


def grouped(rows: Sequence[Run], names: Sequence[str]) -> list[list[Run]]:
    """Rows that agree in all the fields named, group by group, each in its order."""
    groups: dict[str, list[Run]] = {}
    for row in rows:
        # As JSON: a field may hold an object, which is no key of a dict.
        groups.setdefault(json.dumps([row[name] for name in names], sort_keys=True), []).append(row)
    return list(groups.values())


def _scenario(runs: Sequence[Run], shared: Sequence[str]) -> dict[str, Any]:
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


def _epoch_seconds(run: Run) -> float | None:
    return epoch_seconds(run["curves"], compiling_epochs(run))


def _step_seconds(run: Run) -> float | None:
    seconds = _epoch_seconds(run)
    return seconds / run["steps_per_epoch"] if seconds is not None and run["steps_per_epoch"] else None


def with_speedups(scenarios: Sequence[Run]) -> list[dict[str, Any]]:
    """The scenarios, each with its `speedup`: the `ratio` of two rows' examples per second, and `words`.

    `baseline` is the first fingerprint of the row it is compared with. Without a ratio both are None, and the words say
    why. The baseline is the newest comparable row on a CPU, else the slowest: the ratio does not grow with the number
    of old rows, nor depend on the order of the runs.
    """
    eligible = [scenario for scenario in scenarios if not _unfit(scenario)]
    return [{**scenario, "speedup": _speedup(scenario, eligible)} for scenario in scenarios]


def differing(one: Run, other: Run) -> list[str]:
    """The fields that comparable rows must share and these do not. An unknown value is not shared."""
    return [
        name
        for name in (*names(compared=True), "code")
        if one[name] is None or other[name] is None or one[name] != other[name]
    ]


def words_for(name: str) -> str:
    """A field of the record in words."""
    return _WORDS.get(name, name.replace("_", " "))


def _on_other_hardware(one: Run, other: Run) -> bool:
    """Whether two rows are known to differ in hardware."""
    return any(
        one[name] is not None and other[name] is not None and one[name] != other[name] for name in names("hardware")
    )


def _speedup(scenario: Run, eligible: Sequence[Run]) -> dict[str, Any]:
    found = {"ratio": None, "baseline": None}
    if unfit := _unfit(scenario):
        return {**found, "words": unfit}
    others = [other for other in eligible if _on_other_hardware(scenario, other)]
    if not others:
        return {**found, "words": "no other hardware to compare with"}
    nearest = min(others, key=lambda other: len(differing(scenario, other)))
    if differ := differing(scenario, nearest):
        return {**found, "words": f"differs from {_row_name(nearest)} in {', '.join(map(words_for, differ))}"}
    baseline = _baseline([other for other in eligible if not differing(scenario, other)])
    if scenario is baseline:
        return {**found, "words": "baseline"}
    if not _on_other_hardware(scenario, baseline):
        return {**found, "words": "same hardware as the baseline"}
    return {
        "ratio": _rate(scenario) / _rate(baseline),
        "baseline": baseline["fingerprints"][0],
        "words": f"of {_row_name(baseline)}",
    }


def _baseline(comparable: Sequence[Run]) -> Run:
    on_cpu = [row for row in comparable if row["effective_device"] == "cpu"]
    if on_cpu:
        return max(on_cpu, key=lambda row: (datetime.fromisoformat(row["finished_at"]), row["fingerprints"][0]))
    return min(comparable, key=lambda row: (_rate(row), row["fingerprints"][0]))


def _unfit(scenario: Run) -> str:
    """Why the row cannot be compared. Empty if it can."""
    if scenario["status"] == SKIPPED:
        return "skipped"
    if scenario["dataset"] == "synthetic":
        return "stand-in data"
    if is_fallback(scenario):
        return "fallback: not the requested device"
    if not scenario["device_verified"]:
        return "device not verified"
    rate = _rate(scenario)
    return "" if rate is not None and rate > 0 else "no throughput was measured"


def _rate(scenario: Run) -> float | None:
    return scenario["examples_per_second"]["mean"]


def _row_name(row: Run) -> str:
    which = plain(row["fingerprints"][0])[:8]
    return f"{plain(row['effective_device'])} on {hosts(row['hostnames'])} ({which})"


def batch_sizes(scenarios: Sequence[Run]) -> list[dict[str, Any]]:
    """Times of an epoch and of a step by global batch, a table for each group of rows that differ in their batch alone.

    Returns:
        For each group with several batches the fields that its rows share, and `lines`: one for each device, with its
        own fields and `points` by batch. The longest line is the first.
    """
    finished = [row for row in scenarios if row["status"] == FINISHED and row["content_digests"] is not None]
    compared = [name for name in names(compared=True) if name != "global_batch_size"]
    tables = [rows for rows in grouped(finished, compared) if len({row["global_batch_size"] for row in rows}) > 1]
    return [
        {
            **{name: rows[0][name] for name in compared},
            "lines": sorted((_line(line) for line in grouped(rows, _of_a_line())), key=lambda one: -len(one["points"])),
        }
        for rows in tables
    ]


def has_times(table: Run) -> bool:
    """Whether a table by batch has any time."""
    return any(point["epoch_seconds"]["mean"] is not None for line in table["lines"] for point in line["points"])


def _of_a_line() -> list[str]:
    # Steps and the fastest computation depend on the batch, so they do not make another line.
    of_a_batch = ("global_batch_size", *names("computation", compared=False))
    return [name for name in shared_names() if name not in of_a_batch]


def _line(rows: Sequence[Run]) -> dict[str, Any]:
    of_a_point = ("global_batch_size", "steps_per_epoch", "epoch_seconds", "step_seconds", "seeds", "fingerprints")
    points = [{name: row[name] for name in of_a_point} for row in rows]
    return {
        **{name: rows[0][name] for name in (*_of_a_line(), "mismatch", "finished_at")},
        "hostnames": [host for row in rows for host in row["hostnames"]],
        "points": sorted(points, key=lambda point: point["global_batch_size"]),
    }
