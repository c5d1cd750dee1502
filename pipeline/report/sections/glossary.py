"""Glossary of the report's terms, in the units of its problems."""

from collections.abc import Iterator

from pipeline.problems import PROBLEMS
from pipeline.problems.units import units_of
from pipeline.report.blocks import Box, Facts, Section
from pipeline.report.formats import capitalized
from pipeline.report.report import Report
from pipeline.report.templating import TEMPLATES


def glossary(report: Report) -> Iterator[Section]:
    """Yield terms and meanings for the problems of the runs, or for all built-in problems without runs."""
    run_units = {(run.problem, run.units) for run in report.runs if run.problem in PROBLEMS}
    run_units = run_units or {(name, units_of(name)) for name in PROBLEMS.builtin}
    units = [unit for _, unit in sorted(run_units, key=str)]
    terms = []
    for line in (TEMPLATES / "glossary.txt").read_text(encoding="utf-8").splitlines():
        # A scope limits a line to problems with such examples.
        scope, _, text = line.rpartition("| ")
        if scoped := [unit for unit in units if scope in ("", unit.examples)]:
            fields = ("singular", "plural", "rate", "examples")
            words = {name: " or ".join(dict.fromkeys(getattr(unit, name) for unit in scoped)) for name in fields}
            term, _, meaning = text.format(**words).partition(": ")
            terms.append((capitalized(term), meaning))
    yield Section("definitions", "Glossary", [Box("fold", [Facts(terms, "definitions")], summary="Terms of this page")])
