"""Evaluation of a text classifier, with the beginnings of its test texts."""

from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.errors import plural
from pipeline.report.blocks import Block, Facts
from pipeline.report.data.reading import Run
from pipeline.report.formats import number
from pipeline.report.report import Report
from pipeline.report.sections import labels
from pipeline.report.sections.labels import Example, LabelEvaluation, Shown
from pipeline.runs.validation import Count

_Excerpt = Annotated[str, Field(max_length=1_000)]


class ShownText(Shown):
    """A test text with its prediction."""

    text: _Excerpt


class TextExample(Example):
    """A random test text."""

    text: _Excerpt


class LabeledTextEvaluation(LabelEvaluation):
    """Evaluation of a text classifier. Texts have up to ``text_length`` bytes in the records."""

    noun: ClassVar[str] = "text"
    shown_fields: ClassVar[tuple[str, ...]] = ("test_texts", "examples")

    test_texts: list[ShownText]
    examples: list[TextExample]
    text_length: Count
    longer_texts: Count


def data_blocks(report: Report, run: Run) -> list[Block]:
    """Return the length of the texts, examples of each label, and the number of examples per label and split."""
    facts: LabeledTextEvaluation = run.evaluation
    length = f"{number(facts.text_length)} bytes, {plural(facts.longer_texts, 'text')} longer"
    return [Facts([("Beginning of a text in the records", length)]), *labels.data_blocks(report, run)]
