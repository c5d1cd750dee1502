"""The glossary: meanings of the report's terms, in the units of its problems."""

from collections.abc import Iterator

from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN, units_of, units_of_run
from pipeline.report.blocks import Facts, Section
from pipeline.report.formats import capitalised
from pipeline.report.report import Report
from pipeline.report.templating import TEMPLATES

# Names in the glossary of the problems that a line is about.
_SCOPES = {IMAGE_CLASSIFICATION: "images", NEXT_TOKEN: "texts"}


def glossary(report: Report) -> Iterator[Section]:
    """(term, meaning) for the problems of the runs, or for all problems if there is no run."""
    found = {(run["problem"], units_of_run(run)) for run in report.runs if run["problem"] in _SCOPES}
    units = sorted(found or {(name, units_of(name)) for name in _SCOPES}, key=str)
    values = {name: [getattr(one, name) for _, one in units] for name in ("rate", "many", "examples")}
    texts = [one for name, one in units if name == NEXT_TOKEN]
    values |= {"token": [one.one for one in texts], "tokens": [one.many for one in texts]}
    words = {name: " or ".join(dict.fromkeys(several)) for name, several in values.items()}
    terms = []
    for line in (TEMPLATES / "glossary.txt").read_text(encoding="utf-8").splitlines():
        scope, _, text = line.rpartition("| ")
        term, _, meaning = text.format(**words).partition(": ")
        if not scope or scope in [_SCOPES[name] for name, _ in units]:
            terms.append((capitalised(term), meaning))
    yield Section("definitions", "What the figures mean", [Facts(terms, "definitions")])
