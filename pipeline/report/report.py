"""Data of a report, with runs and everything derived from them. `to_json` formats it as report.json.

Neither the clock nor folder names influence report.json. The same runs give the same report on any machine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from pipeline.problems.results import merit, results_of
from pipeline.report.data.champion import Comparison, compare_with
from pipeline.report.data.changes import Change, changes
from pipeline.report.data.experiments import Experiment, best_run, experiments
from pipeline.report.data.gate import Gate, Outcome, judge_gate
from pipeline.report.data.history import age_order, comparable_groups, entries_of, merged
from pipeline.report.data.lineage import Artifact, Exported, exported, lineage
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Entry, Run, call_hook, read_or_none, read_run
from pipeline.report.data.scenarios import Row, scenarios, with_speedups
from pipeline.runs.record import FINISHED
from pipeline.runs.search import Search

# Version 8 refers to runs by their fingerprints.
SCHEMA_VERSION = 8

# Pictures of more runs would make the page too large.
_MAX_PICTURED = 3
# Reading a file of 10,000 predictions takes about 5 ms.
_MAX_PREDICTED = 24
_MAX_DRAWN = 8


@dataclass(frozen=True, kw_only=True)
class Report:
    """The data of a report. Times are wall-clock seconds. Accuracies are from 0 to 1."""

    # Fingerprints of the requested runs.
    current: list[str]
    # Newest first.
    runs: list[Run]
    # Rows of the scoreboard, and data derived from them.
    scenarios: list[Row]
    experiments: list[Experiment]
    # Artifacts that the requested runs depend on.
    lineage: list[Artifact]
    # Comparable runs, the oldest first, see `comparable_groups`.
    history: list[list[Entry]]
    changes: list[Change]
    # None without [Report] champion.
    comparison: Comparison | None
    # None without thresholds.
    gate: Outcome | None
    # Exports by the fingerprint of a requested run.
    exports: dict[str, Exported]
    # Published metrics of these experiments and data.
    published: list[PublishedRow]
    searches: list[Search]
    # Base64 PNGs by kind, of the first requested runs by their ``id``. Only the page shows them.
    pictures: dict[int, Mapping[str, Sequence[str]]]
    # Predictions of the test examples by the ``id`` of the run, see ``Results.predictions``. report.json omits them.
    predictions: dict[int, Any]

    def best(self) -> Run | None:
        """Return the run of the best row of the requested experiment, or None."""
        return best_run(self.experiments)

    def requested(self) -> list[Run]:
        """Return the requested runs in the order of the request."""
        return [run for name in dict.fromkeys(self.current) for run in self.runs if run.fingerprint == name]

    def drawn(self) -> list[Run]:
        """Return the finished runs with drawn curves, requested runs first, then the best.

        Only runs of the requested experiments are drawn, because curves of different experiments cannot be compared.
        """
        finished = [run for run in self.runs if run.status == FINISHED]
        finished.sort(key=lambda run: (run.fingerprint not in self.current, -merit(run.problem, vars(run))))
        current = {run.experiment for run in finished if run.fingerprint in self.current}
        return [run for run in finished if not current or run.experiment in current][:_MAX_DRAWN]

    def ordered(self) -> list[Run]:
        """Return all runs, the best one first, then the requested runs, then the newest."""
        runs = (self.best(), *self.requested(), *self.runs)
        return list({id(run): run for run in runs if run}.values())

    def row_of(self, run: Run) -> Row:
        """Return the row of the scoreboard with a run."""
        return next(row for row in self.scenarios if any(one is run for one in row.runs))

    def pictures_of(self, run: Run) -> Mapping[str, Sequence[str]]:
        """Return the pictures of a run by kind, or {}."""
        return self.pictures.get(id(run), {})

    def predictions_of(self, run: Run) -> Any:
        """Return the predictions of a run, see ``Results.predictions``, or None."""
        return self.predictions.get(id(run))

    def to_json(self) -> str:
        """Format report.json, without pictures. Numbers that JSON cannot represent become null."""
        data = {name: value for name, value in vars(self).items() if name not in ("pictures", "predictions")}
        data |= {"schema_version": SCHEMA_VERSION, "runs": [run.model_dump(mode="json") for run in self.runs]}
        finite = json.loads(json.dumps(data, default=_plain), parse_constant=lambda constant: None)
        return json.dumps(finite, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Convert an object to data for JSON. A run is its fingerprint."""
    if isinstance(value, Entry):
        return value.fingerprint
    return vars(value) if is_dataclass(value) else to_jsonable_python(value)


def build_report(
    run_folders: Sequence[Path],
    *,
    current: Sequence[str],
    past: Sequence[Entry] = (),
    gate: Gate | None = None,
    champion: str | None = None,
    published: Sequence[PublishedRow] = (),
    searches: Sequence[Search] = (),
) -> Report:
    """Collect runs into a report. Damaged runs are logged and omitted.

    DamagedArtifactError: A requested run is damaged. ValueError: A requested run is not among the folders.

    Args:
        run_folders: Folders of finished or skipped runs, in any order.
        current: Fingerprints of the requested runs. May be empty.
        past: Entries of the history, see `read_history`. Entries of the runs are not counted twice.
        gate: Thresholds for the requested runs.
        champion: Run in use, see `compare_with`. None means no comparison.
        published: Published metrics, see `read_published`.
        searches: Searches of settings, see `read_searches`.
    """
    readable = [(folder, run) for folder in run_folders if (run := read_or_none(read_run, folder))]
    # A copy of a run is no second measurement.
    distinct = {(run.fingerprint, run.hostname, run.finished_at): (folder, run) for folder, run in reversed(readable)}
    folder_runs = sorted(distinct.values(), key=lambda pair: age_order(pair[1]), reverse=True)
    runs = [run for _, run in folder_runs]
    if missing := set(current).difference(run.fingerprint for run in runs):
        _refuse(min(missing), run_folders)
    requested = [pair for fingerprint in current for pair in folder_runs if pair[1].fingerprint == fingerprint]
    rows = with_speedups(scenarios(runs))
    # A skipped run has no metrics. The history may contain another run with its fingerprint.
    finished = {(run.fingerprint, run.finished_at) for _, run in requested if run.status == FINISHED}
    groups = comparable_groups(merged(past, entries_of(runs)), {fingerprint for fingerprint, _ in finished})
    changed, run_data = changes(groups, finished), {(run.experiment, run.dataset) for run in runs}
    exports = {run.fingerprint: read_or_none(exported, folder, run) for folder, run in requested}
    summaries = experiments(rows, runs, groups, current)
    comparison = None if champion is None else compare_with(champion, folder_runs, current)
    best = best_run(summaries)
    # The best run is the first, then requested runs, then the newest.
    ordered = sorted(folder_runs, key=lambda pair: (pair[1] is not best, pair[1].fingerprint not in current))
    shown = [pair for pair in ordered if pair[1] is best or pair[1].fingerprint in current]
    return Report(
        current=list(current),
        runs=runs,
        scenarios=rows,
        experiments=summaries,
        lineage=lineage(requested),
        history=groups,
        changes=changed,
        comparison=comparison,
        gate=judge_gate(gate, [run for _, run in requested], changed, comparison) if gate else None,
        exports={fingerprint: forms for fingerprint, forms in exports.items() if forms},
        published=[row for row in published if any((row.experiment, name) in run_data for name in row.datasets)],
        searches=list(searches),
        pictures=_read_by_run("pictures", shown, _MAX_PICTURED),
        predictions=_read_by_run("predictions", ordered, _MAX_PREDICTED),
    )


def _refuse(fingerprint: str, run_folders: Sequence[Path]) -> None:
    for folder in run_folders:
        if folder.name.endswith(fingerprint[:12]):
            # The error of a damaged run names its file.
            read_run(folder)
    raise ValueError(f"current: expected fingerprints of the {len(run_folders)} runs, got {fingerprint!r}")


def _read_by_run(field: str, folder_runs: Sequence[tuple[Path, Run]], limit: int) -> dict[int, Any]:
    """Return what a hook reads from the folders of the first runs with an evaluation, by the ``id`` of the run."""
    evaluated = [pair for pair in folder_runs if pair[1].evaluation and getattr(results_of(pair[1].problem), field)]
    contents = {
        id(run): read_or_none(call_hook, run.problem, field, folder, run.evaluation)
        for folder, run in evaluated[:limit]
    }
    return {key: content for key, content in contents.items() if content}
