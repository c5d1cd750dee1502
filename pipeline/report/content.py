"""Content: the facts of a report with what is said of them, the plain dict that becomes report.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.report.facts.gate import NO_DEMANDS, Gate
from pipeline.report.facts.scoreboard import collect_facts
from pipeline.report.wording.comparison import speedup_part
from pipeline.report.wording.gate import gate_part

# 2: `current` is a list; `scenarios` and `batch_sizes` came. 3: `evaluation` of each run, `lineage`, `exports`,
# `history`, `changes` and `gate` came. 4: rows and lines have `hostnames` in place of `hostname`, groups of the history
# none; a change's `obstacle` and the gate's `not_judged` came. 5: `encodings`, `records` of each run, `experiments`,
# and of `published` the figures by batch and what a source left unsaid, came. 6: `repetition` of each run came.
SCHEMA_VERSION = 6


def build_report(
    run_folders: Sequence[Path],
    *,
    current: Sequence[str],
    past: Sequence[Mapping[str, Any]] = (),
    gate: Gate = NO_DEMANDS,
    published: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Collects runs into the report's data.

    Args:
        run_folders: Folders of finished or skipped runs, in any order.
        current: Fingerprints of the runs the report is asked for; may be empty.
        past: Entries of the history, as `read_history` gives them; what they have of the runs is taken once.
        gate: What is demanded of the current runs.
        published: Figures published elsewhere, as `read_published` gives them; those about an experiment that has no
            runs here are left out.

    Returns:
        `schema_version`, `current`, `runs` (as `read_run` gives them, newest first, each with its
        `repetition`, see facts/repetitions.py), `scenarios` (see
        facts/scenarios.py and wording/comparison.py), `experiments` (see facts/experiments.py), `batch_sizes` (see
        facts/batch_sizes.py), `encodings` (see facts/encodings.py), `lineage` of the current runs and, by fingerprint,
        their `exports` (see facts/lineage.py), `history` (see facts/history.py), `changes` (see facts/changes.py),
        `gate` (see wording/gate.py) and of the `published` figures those that are about these runs. Seconds are
        wall-clock, rates are images per second, accuracies fractions from 0 to 1. `pictures`, of the first current
        runs by their place among `runs`, are for the page alone.

    A run that cannot be read is named in the log and left out: one bad folder must not cost all others their
    report.

    Raises:
        ValueError: No readable run has one of the fingerprints of `current`.
    """
    facts = collect_facts(run_folders, current=current, past=past, gate=gate, published=published)
    rows = [{**row, "speedup": speedup_part(row["speedup"])} for row in facts["scenarios"]]
    return {"schema_version": SCHEMA_VERSION, **facts, "scenarios": rows, "gate": gate_part(facts["gate"])}
