"""Changes of the settings, the data and the code since the last run of an experiment."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from pipeline.report import formats as fmt
from pipeline.report.data.experiments import has_other_data
from pipeline.report.data.reading import Run, split_counts
from pipeline.report.data.scenarios import differing
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import row_settings
from pipeline.runs.record import FINISHED

_MAX_SETTINGS = 6


def changes_since_last_run(report: Report) -> Iterator[str]:
    """Yield the settings, the data and the code that changed, as a sentence per requested experiment."""
    for runs in _requested_by_experiment(report):
        if last := _last_run(report, runs):
            yield f"Since the last run ({fmt.moment(last.finished_at)}), {_changes(report, runs, last)} changed."


def data_changes(report: Report) -> Iterator[str]:
    """Yield a sentence per requested experiment whose data changed since its last run."""
    yield from filter(None, (data_sentence(report, runs) for runs in _requested_by_experiment(report)))


def data_sentence(report: Report, runs: Sequence[Run]) -> str:
    """Return how the data changed from the last run before these. Empty if they did not."""
    last = _last_run(report, runs)
    change = last and _data_change(last, runs[0])
    return f"The data changed: {change}." if change else ""


def _requested_by_experiment(report: Report) -> list[list[Run]]:
    finished = [run for run in report.requested() if run.status == FINISHED]
    names = dict.fromkeys(run.experiment for run in finished)
    return [[run for run in finished if run.experiment == name] for name in names]


def _last_run(report: Report, runs: Sequence[Run]) -> Run | None:
    """Return the newest other run of the experiment that ended before the last of these runs."""
    ids = set(map(id, runs))
    older = dropwhile(lambda run: id(run) not in ids, report.runs)
    others = (run for run in older if id(run) not in ids and run.status == FINISHED)
    return next((run for run in others if run.experiment == runs[0].experiment), None)


def _changes(report: Report, runs: Sequence[Run], last: Run) -> str:
    last_row, *rows = map(report.row_of, (last, *runs))
    if any(row is last_row for row in rows):
        return "only the seed"
    before, *after = map(row_settings, (last_row, *rows))
    names = differing([before, *after])
    parts = [
        f"{name} ({before[name]} → {', '.join(dict.fromkeys(facts[name] for facts in after))})"
        for name in names[:_MAX_SETTINGS]
    ]
    if len(names) > _MAX_SETTINGS:
        parts.append(fmt.plural(len(names) - _MAX_SETTINGS, "other setting"))
    if change := _data_change(last, runs[0]):
        parts.append(f"the data ({change})")
    if any(None not in (codes := {last.code, run.code}) and len(codes) > 1 for run in runs):
        parts.append("the code or the versions of libraries")
    *others, final = parts or ["no recorded setting, data or code"]
    return f"{', '.join(others)} and {final}" if others else final


def _data_change(before: Run, now: Run) -> str:
    """Return the splits with other examples and their sizes. Empty if they are equal or unknown."""
    sizes = [split_counts(run) for run in (before, now)]
    parts = []
    for split in sorted({**(before.content_digests or {}), **(now.content_digests or {})}):
        if has_other_data(before, now, split):
            old, new = (counts.get(split) for counts in sizes)
            examples = f"{fmt.plain(split)} {now.units.examples}"
            changed = f"{fmt.number(old)} → {fmt.number(new)} {examples}"
            parts.append(changed if old != new else f"other {examples} ({fmt.number(new)} as before)")
    return ", ".join(parts)
