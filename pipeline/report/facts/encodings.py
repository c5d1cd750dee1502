"""Encodings: what each way of storing a dataset's images costs, as the runs that read them measured it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.facts.scenarios import grouped
from pipeline.runs.record import FINISHED

# What the stream's speed depends on, apart from the records.
_HOW = ("dataset", "records", "input_in_memory", "augment", "effective_device", "device_name", "granted_cores")
_MAX_ROWS = 12


def encodings(runs: Sequence[Mapping[str, Any]], current: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each way of storing the datasets of the current runs, and of reading it on each kind of machine.

    Args:
        runs: newest first.
        current: fingerprints of the runs the report is asked for.

    Returns:
        Rows, of the newest run of each, with its `fingerprint`, `model`, the fields it was grouped by,
        `stream_examples_per_second` (the stream with nothing behind it) and `input_wait_share`, both None where they
        were not measured. Those with the most bytes an example first.
    """
    finished = [run for run in runs if run["status"] == FINISHED and run["records"] is not None]
    datasets = {run["dataset"] for run in finished if run["fingerprint"] in current}
    groups = grouped([run for run in finished if run["dataset"] in datasets], _HOW)
    rows = [_row(group[0]) for group in groups[:_MAX_ROWS]]
    return sorted(rows, key=lambda row: -row["records"]["total_bytes"] / max(1, row["records"]["num_examples"]))


def _row(run: Mapping[str, Any]) -> dict[str, Any]:
    times = run["time_breakdown"] or {}
    seconds = times.get("input_alone_seconds")
    return {
        **{name: run[name] for name in (*_HOW, "fingerprint", "model")},
        "stream_examples_per_second": run["global_batch_size"] / seconds if seconds else None,
        "input_wait_share": times.get("input_wait_share"),
    }
