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


def scenarios(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Group runs into rows, in the order of the first run of each.

    A row has the fields that its runs share, `finished_at` and `mismatch` of its first run, lists of its runs' facts,
    and `{"mean", "deviation"}` of their figures. `epoch_seconds` and `step_seconds` omit compiling epochs. The
    deviation is the sample standard deviation, None for a single run.
    """
    return [_scenario(group) for group in grouped(runs, _shared())]


def grouped(rows: Sequence[Run], names: Sequence[str]) -> list[list[Run]]:
    """Rows that agree in all the fields named, group by group, each in its order."""
    groups: dict[str, list[Run]] = {}
    for row in rows:
        # An object in a field cannot be a key of a dict.
        groups.setdefault(json.dumps([row[name] for name in names], sort_keys=True), []).append(row)
    return list(groups.values())


def _shared() -> tuple[str, ...]:
    """The fields that the runs of a row share."""
    return ("made_from", "code", "fetched_from", *names(repeated=False))


def _scenario(runs: Sequence[Run]) -> dict[str, Any]:
    in_order = sorted(runs, key=lambda run: run["seed"])
    # A run repeated on another host is measured anew but computes the same: no second draw of its accuracy.
    once = {run["fingerprint"]: run for run in reversed(runs)}.values()
    epochs = [epoch_seconds(run["curves"], compiling_epochs(run)) for run in runs]
    steps = [
        seconds / run["steps_per_epoch"] if seconds is not None and run["steps_per_epoch"] else None
        for seconds, run in zip(epochs, runs, strict=True)
    ]
    return {
        **{name: runs[0][name] for name in (*_shared(), "mismatch", "finished_at")},
        **{f"{name}s": [run[name] for run in in_order] for name in ("seed", "fingerprint", "hostname", "repetition")},
        "resumed": [one for run in runs for one in run["resumed"]],
        **{name: mean_and_deviation([run[name] for run in runs]) for name in ("train_seconds", "examples_per_second")},
        **{name: mean_and_deviation([run[name] for run in once]) for name in _OF_A_DRAW},
        "epoch_seconds": mean_and_deviation(epochs),
        "step_seconds": mean_and_deviation(steps),
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


def with_speedups(scenarios: Sequence[Run]) -> list[dict[str, Any]]:
    """The scenarios, each with its `speedup`: the `ratio` of two rows' examples per second, and `words`.

    `baseline` is the first fingerprint of the row it is compared with. Without a ratio both are None, and the words
    give the reason. The baseline is the newest comparable row on a CPU, else the slowest: the ratio does not grow with
    the number of old rows, nor depend on the order of the runs.
    """
    fit = [scenario for scenario in scenarios if not _unfit(scenario)]
    found = []
    for scenario in scenarios:
        words, baseline = _compared(scenario, fit)
        ratio = {"ratio": _rate(scenario) / _rate(baseline) if baseline else None}
        speedup = ratio | {"baseline": baseline["fingerprints"][0] if baseline else None, "words": words}
        found.append({**scenario, "speedup": speedup})
    return found


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


def _compared(scenario: Run, fit: Sequence[Run]) -> tuple[str, Run | None]:
    """The words of a speed-up, and the row it is compared with."""
    if unfit := _unfit(scenario):
        return unfit, None
    others = [other for other in fit if _on_other_hardware(scenario, other)]
    if not others:
        return "no other hardware to compare with", None
    nearest = min(others, key=lambda other: len(differing(scenario, other)))
    if differ := differing(scenario, nearest):
        return f"differs from {_row_name(nearest)} in {', '.join(map(words_for, differ))}", None
    comparable = [other for other in fit if not differing(scenario, other)]
    on_cpu = [row for row in comparable if row["effective_device"] == "cpu"]
    if on_cpu:
        baseline = max(on_cpu, key=lambda row: (datetime.fromisoformat(row["finished_at"]), row["fingerprints"][0]))
    else:
        baseline = min(comparable, key=lambda row: (_rate(row), row["fingerprints"][0]))
    if scenario is baseline:
        return "baseline", None
    if not _on_other_hardware(scenario, baseline):
        return "same hardware as the baseline", None
    return f"of {_row_name(baseline)}", baseline


def _on_other_hardware(one: Run, other: Run) -> bool:
    """Whether two rows are known to differ in hardware."""
    return any(None not in (one[name], other[name]) and one[name] != other[name] for name in names("hardware"))


def _unfit(scenario: Run) -> str:
    """The reason why the row cannot be compared. Empty if it can."""
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
    # Steps and the fastest computation depend on the batch, so they do not make another line.
    of_a_batch = ("global_batch_size", *names("computation", compared=False))
    of_a_line = [name for name in _shared() if name not in of_a_batch]
    tables = []
    for rows in grouped(finished, compared):
        if len({row["global_batch_size"] for row in rows}) > 1:
            lines = [_line(line, of_a_line) for line in grouped(rows, of_a_line)]
            lines.sort(key=lambda line: -len(line["points"]))
            tables.append({**{name: rows[0][name] for name in compared}, "lines": lines})
    return tables


def has_times(table: Run) -> bool:
    """Whether a table by batch has any time."""
    return any(point["epoch_seconds"]["mean"] is not None for line in table["lines"] for point in line["points"])


def points_of(rows: Sequence[Run], names: Sequence[str]) -> list[dict[str, Any]]:
    """These fields of the rows by global batch."""
    points = [{name: row[name] for name in ("global_batch_size", *names)} for row in rows]
    return sorted(points, key=lambda point: point["global_batch_size"])


def _line(rows: Sequence[Run], of_a_line: Sequence[str]) -> dict[str, Any]:
    of_a_point = ("steps_per_epoch", "epoch_seconds", "step_seconds", "seeds", "fingerprints")
    return {
        **{name: rows[0][name] for name in (*of_a_line, "mismatch", "finished_at")},
        "hostnames": [host for row in rows for host in row["hostnames"]],
        "points": points_of(rows, of_a_point),
    }
