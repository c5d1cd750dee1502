"""The data of a report: runs and what follows from them. `to_json` makes report.json from it.

No clock and no folder name enters the report: the same runs give the same report on any machine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.problems.results import results_of
from pipeline.report.data.changes import changes
from pipeline.report.data.experiments import experiments
from pipeline.report.data.gate import Gate, Outcome, judge_gate
from pipeline.report.data.history import entries_of, merged, trends
from pipeline.report.data.lineage import exported, lineage, repetition
from pipeline.report.data.measures import encodings
from pipeline.report.data.published import by_batch, published_beside
from pipeline.report.data.reading import or_none, read_run
from pipeline.report.data.scenarios import batch_sizes, scenarios, with_speedups
from pipeline.report.formats import Run
from pipeline.runs.record import FINISHED

# 6: `repetition` of each run came.
SCHEMA_VERSION = 6

# Pictures of more runs would make a page of megabytes.
_MAX_PICTURED = 3
_MAX_DRAWN = 24


@dataclass(frozen=True, kw_only=True)
class Report:
    """The data of a report. Seconds are wall-clock, accuracies are from 0 to 1."""

    # Fingerprints of the requested runs.
    current: list[str]
    # All runs, newest first, see `data.reading.read_run`, each with its `repetition`.
    runs: list[Run]
    # Rows of the scoreboard, see `data.scenarios`, and what follows from them.
    scenarios: list[Run]
    experiments: list[Run]
    # Times by batch, with those `published` elsewhere.
    batch_sizes: list[Run]
    # Cost of the stored images, see `data.measures`.
    encodings: list[Run]
    # Stages with the artifacts of the requested runs.
    lineage: list[Run]
    # Groups of comparable runs over time, and the changes of the requested runs.
    history: list[Run]
    changes: list[Run]
    # None without requirements.
    gate: Outcome | None
    # Exported forms by the fingerprint of a requested run.
    exports: dict[str, Run]
    # Figures published elsewhere about these experiments and data.
    published: list[Run]
    # PNGs of the first requested runs by their index among ``runs``, for the page alone.
    pictures: dict[int, Mapping[str, Sequence[str]]]

    def requested(self) -> list[Run]:
        """The requested runs, in the order of the request."""
        return [run for asked_for in self.current for run in self.runs if run["fingerprint"] == asked_for]

    def drawn(self) -> list[Run]:
        """The finished runs whose curves are drawn, the requested ones first, then the newest.

        Only runs of the requested experiments: curves of two experiments are not to be compared.
        """
        finished = [run for run in self.runs if run["status"] == FINISHED]
        asked_for = {run["experiment"] for run in finished if run["fingerprint"] in self.current}
        mine = [run for run in finished if not asked_for or run["experiment"] in asked_for]
        return sorted(mine, key=lambda run: run["fingerprint"] not in self.current)[:_MAX_DRAWN]

    def pictures_of(self, run: Run) -> Mapping[str, Sequence[str]]:
        """The pictures of a run by kind. Empty if it has none."""
        return next((pictures for place, pictures in self.pictures.items() if self.runs[place] is run), {})

    def to_json(self) -> str:
        """The text of report.json: null for each figure that JSON cannot hold, and no pictures."""
        data = {name: part for name, part in vars(self).items() if name != "pictures"}
        data |= {"schema_version": SCHEMA_VERSION, "gate": asdict(self.gate) if self.gate else None}
        finite = json.loads(json.dumps(data), parse_constant=lambda constant: None)
        return json.dumps(finite, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def build_report(
    run_folders: Sequence[Path],
    *,
    current: Sequence[str],
    past: Sequence[Run] = (),
    gate: Gate | None = None,
    published: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Collect runs into a report. A run that cannot be read is named in the log and omitted.

    Args:
        run_folders: Folders of finished or skipped runs, in any order.
        current: Fingerprints of the requested runs; may be empty.
        past: Entries of the history, see `read_history`. Entries about the runs count once.
        gate: The requirements on the requested runs.
        published: Figures published elsewhere, see `read_published`.

    Raises:
        ValueError: No readable run has one of the fingerprints of `current`.
    """
    found = sorted(_readable_runs(run_folders), key=lambda pair: _age_order(pair[1]), reverse=True)
    runs = [run for _, run in found]
    if unknown := set(current).difference(run["fingerprint"] for run in runs):
        raise ValueError(f"current: expected fingerprints of the {len(runs)} runs, got {min(unknown)!r}")
    asked = [pair for fingerprint in current for pair in found if pair[1]["fingerprint"] == fingerprint]
    rows = with_speedups(scenarios(runs))
    entries = merged(past, entries_of(runs))
    # A skipped run has no figures. The history may have those of another under its fingerprint.
    finished = {(run["fingerprint"], run["finished_at"]) for _, run in asked if run["status"] == FINISHED}
    changed, beside = changes(entries, finished), published_beside(runs, published)
    exports = {run["fingerprint"]: or_none(exported, folder, run) for folder, run in asked}
    pictured = [
        (folder, run, read)
        for folder, run in asked
        if run["evaluation"] and (read := results_of(run["problem"]).hook("pictures"))
    ]
    pictures = {
        runs.index(run): or_none(read, folder, run["evaluation"]) for folder, run, read in pictured[:_MAX_PICTURED]
    }
    return Report(
        current=list(current),
        runs=runs,
        scenarios=rows,
        experiments=experiments(rows, runs, entries, current),
        batch_sizes=[{**table, "published": by_batch(beside, table)} for table in batch_sizes(rows)],
        encodings=encodings(runs, current),
        lineage=lineage(asked),
        history=trends(entries, {fingerprint for fingerprint, _ in finished}),
        changes=changed,
        gate=judge_gate(gate, [run for _, run in asked], changed) if gate else None,
        exports={fingerprint: forms for fingerprint, forms in exports.items() if forms},
        published=beside,
        pictures={place: found for place, found in pictures.items() if found},
    )


def _readable_runs(folders: Sequence[Path]) -> Iterator[tuple[Path, Run]]:
    seen = set()
    for folder in folders:
        if (run := or_none(read_run, folder)) is None:
            continue
        # A copy beside its original is no second measurement.
        which = (run["fingerprint"], run["hostname"], run["finished_at"])
        if which not in seen:
            seen.add(which)
            yield folder, {**run, "repetition": repetition(folder)}


def _age_order(run: Run) -> tuple[datetime, str, str]:
    return datetime.fromisoformat(run["finished_at"]), run["fingerprint"], run["hostname"] or ""
