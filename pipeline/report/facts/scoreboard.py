"""Scoreboard: finished runs to all that is known of them, side by side.

No clock and no folder name enters the report: the same runs give the same report, on any machine.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.report.facts.batch_sizes import batch_sizes
from pipeline.report.facts.changes import changes
from pipeline.report.facts.comparison import with_speedups
from pipeline.report.facts.encodings import encodings
from pipeline.report.facts.experiments import experiments
from pipeline.report.facts.gate import Gate, judge_gate
from pipeline.report.facts.history import entries_of, merged, trends
from pipeline.report.facts.lineage import exported, lineage, stages
from pipeline.report.facts.pictures import read_pictures
from pipeline.report.facts.published import published_beside
from pipeline.report.facts.reading import read_run
from pipeline.report.facts.repetitions import repetition, repetitions
from pipeline.report.facts.scenarios import scenarios
from pipeline.runs.record import FINISHED

# Pictures of more runs would make a page of megabytes.
MAX_PICTURED_RUNS = 3

_logger = logging.getLogger(__name__)


def collect_facts(
    run_folders: Sequence[Path],
    *,
    current: Sequence[str],
    past: Sequence[Mapping[str, Any]],
    gate: Gate,
    published: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """All that report.json says, and the page's `pictures`: see content.build_report.

    What is said in words there is not yet: the `speedup` of each of the `scenarios` is a SpeedUp, and the `gate` an
    Outcome, or None where nothing is demanded.

    Raises:
        ValueError: No readable run has one of the fingerprints of `current`.
    """
    found = sorted(_readable_runs(run_folders), key=lambda pair: _age_order(pair[1]), reverse=True)
    # Runs of a report lie under one root.
    repeated = [one for root in {folder.parent.parent for folder, _ in found} for one in repetitions(root)]
    found = [(folder, {**run, "repetition": repetition(folder, run, repeated)}) for folder, run in found]
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
    beside = published_beside(runs, published)
    return {
        "current": list(current),
        "runs": runs,
        "scenarios": rows,
        "experiments": experiments(rows, runs, entries, current),
        "batch_sizes": batch_sizes(rows, beside),
        "encodings": encodings(runs, current),
        "lineage": stages([lineage(folder, run) for folder, run in asked]),
        "history": trends(entries, {fingerprint for fingerprint, _ in finished}),
        "changes": changed,
        "gate": judge_gate(gate, [run for _, run in asked], changed),
        "exports": _exports(asked),
        "pictures": _pictures(asked, runs),
        "published": beside,
    }


def current_runs(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs the report was asked for, in the order asked."""
    return [run for asked_for in report["current"] for run in report["runs"] if run["fingerprint"] == asked_for]


def _exports(asked: Sequence[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    found = {}
    for folder, run in asked:
        try:
            found[run["fingerprint"]] = exported(folder, run)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
    return {fingerprint: facts for fingerprint, facts in found.items() if facts}


def _pictures(asked: Sequence[tuple[Path, Mapping[str, Any]]], runs: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    pictured = [(folder, run) for folder, run in asked if "tiles" in (run["evaluation"] or {})][:MAX_PICTURED_RUNS]
    found = {}
    for folder, run in pictured:
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
