"""Scoreboard: finished runs to the report's data, the plain dict that becomes report.json.

No clock and no folder name enters the report: the same runs give the same report, on any machine.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.report.batch_sizes import batch_sizes
from pipeline.report.changes import changes
from pipeline.report.comparison import with_speedups
from pipeline.report.gate import NO_DEMANDS, Gate, judge_gate
from pipeline.report.history import entries_of, merged, trends
from pipeline.report.lineage import exported, lineage, stages
from pipeline.report.predictions import read_pictures
from pipeline.report.reading import read_run
from pipeline.report.scenarios import scenarios
from pipeline.runs.record import FINISHED

# 2: `current` is a list; `scenarios` and `batch_sizes` came. 3: `evaluation` of each run, `lineage`, `exports`,
# `history`, `changes` and `gate` came. 4: rows and lines have `hostnames` in place of `hostname`, groups of the history
# none; a change's `obstacle` and the gate's `not_judged` came.
SCHEMA_VERSION = 4
# Pictures of more runs would make a page of megabytes.
MAX_PICTURED_RUNS = 3

_logger = logging.getLogger(__name__)


def _published(scenario: str, requested: str, effective: str, seconds: float, rate: float, accuracy: float,
               note: str = "") -> dict[str, Any]:  # fmt: skip
    return {
        "scenario": scenario,
        "requested_device": requested,
        "effective_device": effective,
        "device_note": note,
        "dataset": "cifar10",
        "model": "baseline CNN",
        "epochs": 5,
        "train_seconds": seconds,
        "examples_per_second": rate,
        "val_accuracy": accuracy,
        "published_elsewhere": True,
        "source": "published figures of the tutorials this project grew from; 5 epochs × 50,000 images",
    }


# Figures as published: time in seconds, images per second over all epochs, accuracy as a fraction.
PUBLISHED: tuple[Mapping[str, Any], ...] = (
    _published("CPU runtime", "cpu", "cpu", 167.84, 1489, 0.7242),
    _published("GPU runtime", "gpu", "gpu", 34.66, 7213, 0.7336),
    _published("“TPU runtime”", "tpu", "cpu", 30.42, 8218, 0.7227, "the TPU's host: the resolver had failed"),
)


def build_report(
    run_folders: Sequence[Path],
    *,
    current: Sequence[str],
    past: Sequence[Mapping[str, Any]] = (),
    gate: Gate = NO_DEMANDS,
) -> dict[str, Any]:
    """Collects runs into the report's data.

    Args:
        run_folders: Folders of finished or skipped runs, in any order.
        current: Fingerprints of the runs the report is asked for; may be empty.
        past: Entries of the history, as `read_history` gives them; what they have of the runs is taken once.
        gate: What is demanded of the current runs.

    Returns:
        `schema_version`, `current`, `runs` (as `read_run` gives them, newest first), `scenarios` (see scenarios.py
        and comparison.py), `batch_sizes` (see batch_sizes.py), `lineage` of the current runs and, by fingerprint,
        their `exports` (see lineage.py), `history` (see history.py), `changes` (see changes.py), `gate` (see gate.py)
        and `published`, the rows of PUBLISHED that are about a dataset the runs used. Seconds are wall-clock, rates are
        images per second, accuracies fractions from 0 to 1. `pictures`, of the first current runs by their place among
        `runs`, are for the page alone.

    A run that cannot be read is named in the log and left out: one bad folder must not cost all others their
    report.

    Raises:
        ValueError: No readable run has one of the fingerprints of `current`.
    """
    found = sorted(_readable_runs(run_folders), key=lambda pair: _age_order(pair[1]), reverse=True)
    runs = [run for _, run in found]
    for asked_for in current:
        if asked_for not in {run["fingerprint"] for run in runs}:
            raise ValueError(f"current: expected fingerprints of the {len(runs)} runs, got {asked_for!r}")
    rows = with_speedups(scenarios(runs))
    asked = [pair for fingerprint in current for pair in found if pair[1]["fingerprint"] == fingerprint]
    entries = merged(past, entries_of(runs))
    # A run that was skipped has no figures; the history may have those of another under its fingerprint.
    finished = {(run["fingerprint"], run["finished_at"]) for _, run in asked if run["status"] == FINISHED}
    changed = changes(entries, finished)
    return {
        "schema_version": SCHEMA_VERSION,
        "current": list(current),
        "runs": runs,
        "scenarios": rows,
        "batch_sizes": batch_sizes(rows),
        "lineage": stages([lineage(folder, run) for folder, run in asked]),
        "history": trends(entries, {fingerprint for fingerprint, _ in finished}),
        "changes": changed,
        "gate": judge_gate(gate, [run for _, run in asked], changed),
        "exports": _exports(asked),
        "pictures": _pictures(asked, runs),
        "published": _published_beside(runs),
    }


def _published_beside(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The published figures that are about a dataset these runs used: beside any other they would mislead."""
    datasets = {run["dataset"] for run in runs}
    return [dict(row) for row in PUBLISHED if row["dataset"] in datasets]


def _exports(asked: Sequence[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    found = {}
    for folder, run in asked:
        try:
            found[run["fingerprint"]] = exported(folder, run)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
    return {fingerprint: facts for fingerprint, facts in found.items() if facts}


def _pictures(asked: Sequence[tuple[Path, Mapping[str, Any]]], runs: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    evaluated = [(folder, run) for folder, run in asked if run["evaluation"]][:MAX_PICTURED_RUNS]
    found = {}
    for folder, run in evaluated:
        try:
            found[runs.index(run)] = read_pictures(folder, run["evaluation"])
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
    return found


def _readable_runs(folders: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    seen = set()
    for folder in folders:
        try:
            run = read_run(folder)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
            continue
        # A copy beside its original is no second measurement.
        which = (run["fingerprint"], run["hostname"], run["finished_at"])
        if which not in seen:
            seen.add(which)
            yield folder, run


def _age_order(run: Mapping[str, Any]) -> tuple[datetime, str, str]:
    return datetime.fromisoformat(run["finished_at"]), run["fingerprint"], run["hostname"] or ""
