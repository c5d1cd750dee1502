"""Data of a report, with runs and everything derived from them. `to_json` formats it as report.json.

Neither the clock nor folder names influence report.json. The same runs give the same report on any machine.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from pipeline.problems.results import results_of
from pipeline.report.data import reading
from pipeline.report.data.champion import Comparison, compare_with
from pipeline.report.data.gate import Gate, Outcome, judge_gate
from pipeline.report.data.history import Change, age_order, changes, comparable_groups, entries_of, merged
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Artifact, Entry, Exported, Run, read_or_none, read_run
from pipeline.report.data.scoreboard import Experiment, Row, experiments, scenarios
from pipeline.runs.record import FINISHED
from pipeline.runs.search import Search

# Version 8 refers to runs by their fingerprints.
SCHEMA_VERSION = 8

# Pictures of more runs would make the page too large.
_MAX_PICTURED = 3
# Reading a file of 10,000 predictions takes about 5 ms.
_MAX_PREDICTED = 24


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

    def best(self) -> Run | None:
        """Return the run of the best row of the first requested experiment with one. Without a request, all count."""
        requested = [experiment for experiment in self.experiments if experiment.is_current] or self.experiments
        return next((experiment.best.run for experiment in requested if experiment.best), None)

    def requested(self) -> list[Run]:
        """Return the requested runs in the order of the request."""
        return [run for name in dict.fromkeys(self.current) for run in self.runs if run.fingerprint == name]

    def ordered(self) -> list[Run]:
        """Return all runs, the best one first, then the requested runs, then the newest."""
        runs = (self.best(), *self.requested(), *self.runs)
        return list({id(run): run for run in runs if run}.values())

    def row_of(self, run: Run) -> Row:
        """Return the row of the scoreboard with a run."""
        return next(row for row in self.scenarios if any(one is run for one in row.runs))

    def pictures_of(self, run: Run) -> Mapping[str, Sequence[str]]:
        """Return base64 PNGs by kind of the best run or one of the first requested runs, {} for others."""
        return self._pictures.get(id(run), {})

    def predictions_of(self, run: Run) -> Any:
        """Return the predictions of a run, see ``Results.predictions``, or None."""
        return self._predictions.get(id(run))

    @cached_property
    def _pictures(self) -> dict[int, Mapping[str, Sequence[str]]]:
        best = self.best()
        shown = [run for run in self.ordered() if run is best or run.fingerprint in self.current]
        return _read_by_run("pictures", shown, _MAX_PICTURED)

    @cached_property
    def _predictions(self) -> dict[int, Any]:
        return _read_by_run("predictions", self.ordered(), _MAX_PREDICTED)

    def to_json(self) -> str:
        """Format report.json. Numbers that JSON cannot represent become null."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
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
    readable = [run for folder in run_folders if (run := read_or_none(read_run, folder))]
    # A copy of a run is no second measurement.
    runs = sorted(merged(reversed(readable)), key=age_order, reverse=True)
    if missing := set(current).difference(run.fingerprint for run in runs):
        for folder in run_folders:
            if folder.name.endswith(min(missing)[:12]):
                # The error of a damaged run names its file.
                read_run(folder)
        problem = f"expected fingerprints of the {len(run_folders)} runs, got {min(missing)!r}"
        raise ValueError(f"current: {problem}")
    requested = [run for fingerprint in current for run in runs if run.fingerprint == fingerprint]
    rows = scenarios(runs)
    # A skipped run has no metrics. The history may contain another run with its fingerprint.
    finished = {(run.fingerprint, run.finished_at) for run in requested if run.status == FINISHED}
    groups = comparable_groups(merged(past, entries_of(runs)), {fingerprint for fingerprint, _ in finished})
    changed, run_data = changes(groups, finished), {(run.experiment, run.dataset) for run in runs}
    comparison = None if champion is None else compare_with(champion, runs, current)
    return Report(
        current=list(current),
        runs=runs,
        scenarios=rows,
        experiments=experiments(rows, runs, groups, current),
        lineage=reading.lineage(requested),
        history=groups,
        changes=changed,
        comparison=comparison,
        gate=judge_gate(gate, requested, changed, comparison) if gate else None,
        exports={run.fingerprint: forms for run in requested if (forms := read_or_none(reading.exported, run))},
        published=[row for row in published if any((row.experiment, name) in run_data for name in row.datasets)],
        searches=list(searches),
    )


def _read_by_run(field: str, runs: Sequence[Run], limit: int) -> dict[int, Any]:
    """Return what a hook reads from the folders of the first runs with an evaluation, by the ``id`` of the run."""
    evaluated = [run for run in runs if run.evaluation and getattr(results_of(run.problem), field)]
    read = partial(read_or_none, reading.call_hook)
    contents = {id(run): read(run.problem, field, run.path, run.evaluation) for run in evaluated[:limit]}
    return {key: content for key, content in contents.items() if content}
