"""Evaluation of a text classifier, with the beginnings of its mistakes."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from pipeline.errors import plural
from pipeline.report.blocks import Block, Box, Facts, Table, Text, numbers, titled, words
from pipeline.report.data.reading import Run
from pipeline.report.formats import number, plain
from pipeline.report.report import Report
from pipeline.report.sections.labels import (
    MAX_NAME,
    Example,
    LabelEvaluation,
    Shown,
    count_table,
    described,
    heading,
    label_blocks,
    label_names,
    matrix,
    worst_confusions,
)
from pipeline.report.sections.texts import readable
from pipeline.runs.validation import Count

_MAX_MISTAKES, _MAX_CONFUSIONS, _OPEN_TEXTS = 24, 6, 6
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


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run's evaluation. The texts are those of the best run."""
    facts: LabeledTextEvaluation = run.evaluation
    predictions = report.predictions_of(run)
    mistakes, uncertain = [], []
    for item in facts.test_texts if run is report.ordered()[0] else ():
        text_name, title, _ = described(facts, item, predictions)
        blocks = [Text(f"{text_name}: {title}", "note"), Text(readable(item.text), "prose")]
        (mistakes if item.label != item.predicted else uncertain).append(blocks)
    mistakes = mistakes[:_MAX_MISTAKES]
    confusion = matrix(facts, name) or _confusions(facts)
    return [
        *heading(facts, len(mistakes)),
        *_folded(mistakes, "More mistakes"),
        *(titled("Confusion matrix", confusion) if confusion else ()),
        *titled("Correct with the least confidence", *_folded(uncertain, "More correct texts")),
        *label_blocks(report, run, name),
    ]


def _folded(texts: Sequence[Sequence[Block]], summary: str) -> Iterator[Block]:
    shown, more = texts[:_OPEN_TEXTS], texts[_OPEN_TEXTS:]
    yield from (block for blocks in shown for block in blocks)
    yield Box("fold", [block for blocks in more for block in blocks], summary)


def _confusions(facts: LabeledTextEvaluation) -> Table:
    names = label_names(facts)
    rows = [(names[true], names[given], number(n)) for true, given, n in worst_confusions(facts, _MAX_CONFUSIONS)]
    return Table([*words("actual", "predicted"), *numbers("test texts")], rows, label="Largest confusions")


def data_blocks(report: Report, run: Run) -> list[Block]:
    """Return the length of the texts, an example of each label, and the number of examples per label and split."""
    facts: LabeledTextEvaluation = run.evaluation
    names, examples = label_names(facts), {}
    for example in facts.examples:
        examples.setdefault(example.label, example)
    blocks = []
    for label, example in examples.items():
        blocks.append(Text(f"{names[label]}: {plain(example.name, MAX_NAME)}", "note"))
        blocks.append(Text(readable(example.text), "prose"))
    length = f"{number(facts.text_length)} bytes, {plural(facts.longer_texts, 'text')} longer"
    return [
        Facts([("Beginning of a text in the records", length)]),
        *titled("A random test text of each label", *blocks),
        count_table(facts),
    ]
