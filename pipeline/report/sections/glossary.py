"""The glossary: meanings of the report's terms, in the units of its problems."""

from collections.abc import Iterator

from pipeline.problems import PROBLEMS
from pipeline.problems.units import units_of
from pipeline.report.blocks import Facts, Section
from pipeline.report.formats import capitalized
from pipeline.report.report import Report
from pipeline.report.templating import TEMPLATES


def glossary(report: Report) -> Iterator[Section]:
    """(term, meaning) for the problems of the runs, or for all problems if there is no run."""
    found = {(run.problem, run.units) for run in report.runs if run.problem in PROBLEMS}
    found = found or {(name, units_of(name)) for name in PROBLEMS.builtin}
    units = [one for _, one in sorted(found, key=str)]
    terms = []
    for line in (TEMPLATES / "glossary.txt").read_text(encoding="utf-8").splitlines():
        # A line may be about the problems of images or of texts alone.
        scope, _, text = line.rpartition("| ")
        if several := [one for one in units if scope in ("", one.files)]:
            names = ("one", "many", "rate", "examples")
            words = {name: " or ".join(dict.fromkeys(getattr(one, name) for one in several)) for name in names}
            term, _, meaning = text.format(**words).partition(": ")
            terms.append((capitalized(term), meaning))
    yield Section("definitions", "What the figures mean", [Facts(terms, "definitions")])
