"""Sections of a report in the order of the page. Each function takes the report and yields its sections."""

from collections.abc import Iterable, Iterator

from pipeline.registry import Registry
from pipeline.report.blocks import Section
from pipeline.report.data.reading import call_package
from pipeline.report.report import Report

SECTIONS = Registry(
    "sections",
    {
        "overview": "pipeline.report.sections.scoreboard:overview",
        "scoreboard": "pipeline.report.sections.scoreboard:scoreboards",
        "curves": "pipeline.report.sections.charts:curves",
        "champion": "pipeline.report.sections.compare:champion",
        "compare": "pipeline.report.sections.compare:compare",
        "evaluation": "pipeline.report.sections.runs:evaluation",
        "sweeps": "pipeline.report.sections.charts:sweeps",
        "searches": "pipeline.report.sections.searches:searches",
        "runs": "pipeline.report.sections.runs:runs",
        "records": "pipeline.report.sections.records:records",
        "history": "pipeline.report.sections.charts:history",
        "lineage": "pipeline.report.sections.records:lineage",
        "definitions": "pipeline.report.sections.records:glossary",
    },
)
#: Names of the sections that only the page has.
PAGE_ONLY = ("compare", "records", "lineage", "definitions")
#: The sections that the terminal shows.
TERMINAL = ("overview", "scoreboard")


def sections(report: Report, names: Iterable[str] | None = None) -> Iterator[Section]:
    """Yield the sections with these names, or all, that have blocks. Failing ones of other packages are left out."""
    for name in SECTIONS if names is None else names:
        found = call_package(SECTIONS[name], lambda name=name: SECTIONS.load(name)(report)) or ()
        yield from (section for section in found if any(section.blocks))
