"""The glossary: meanings of the report's terms, in the units of its problems."""

from collections.abc import Iterable, Iterator

from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN, Units, units_of, units_of_run
from pipeline.report.blocks import Facts, Section
from pipeline.report.formats import capitalised
from pipeline.report.report import Report
from pipeline.report.templating import render

_KNOWN = (IMAGE_CLASSIFICATION, NEXT_TOKEN)


def glossary(report: Report) -> Iterator[Section]:
    """(term, meaning) for the problems of the runs, or for all problems if there is no run."""
    given: dict[str, dict[Units, None]] = {}
    for run in report.runs:
        given.setdefault(run["problem"], {})[units_of_run(run)] = None
    shown = [problem for problem in _KNOWN if problem in given] or _KNOWN
    counted = [units for problem in shown for units in given.get(problem, [units_of(problem)])]
    of_texts = given.get(NEXT_TOKEN, [units_of(NEXT_TOKEN)])
    text = render(
        "glossary.txt.j2",
        images=IMAGE_CLASSIFICATION in shown,
        texts=NEXT_TOKEN in shown,
        rates=_named(counted, "rate"),
        many=_named(counted, "many"),
        examples=_named(counted, "examples"),
        token=_named(of_texts, "one"),
        tokens=_named(of_texts, "many"),
    )
    lines = [line.partition(": ") for line in text.splitlines() if line]
    terms = [(capitalised(term), meaning) for term, _, meaning in lines]
    yield Section("definitions", "What the figures mean", [Facts(terms, "definitions")])


def _named(units: Iterable[Units], name: str) -> str:
    return " or ".join(dict.fromkeys(getattr(one, name) for one in units))
