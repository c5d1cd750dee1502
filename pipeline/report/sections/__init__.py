"""The sections of a report in the order of the page. Each function takes the report and yields its sections."""

from collections.abc import Iterable, Iterator

from pipeline.report.blocks import Section
from pipeline.report.report import Report
from pipeline.report.sections import charts, evaluation, glossary, records, runs, scoreboard

SECTIONS = {
    "overview": scoreboard.overview,
    "this-run": runs.this_run,
    "scoreboard": scoreboard.scoreboards,
    "batches": charts.times_by_batch,
    "curves": charts.curves,
    "history": charts.history,
    "evaluation": evaluation.evaluation,
    "records": records.records,
    "lineage": records.lineage,
    "runs": runs.requested_runs,
    "definitions": glossary.glossary,
}
#: The sections that the terminal shows.
TERMINAL = ("overview", "scoreboard", "batches")


def sections(report: Report, names: Iterable[str] | None = None) -> Iterator[Section]:
    """The sections of these names, by default all, that have blocks."""
    for name in SECTIONS if names is None else names:
        yield from (section for section in SECTIONS[name](report) if any(section.blocks))
