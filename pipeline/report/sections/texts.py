"""The evaluation of a text. What surprises a model has shades behind the letters."""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline.report.blocks import Block, Box, Facts, Table, Text, figures, titled
from pipeline.report.data.reading import Run
from pipeline.report.formats import number, percent, plain
from pipeline.report.report import Report
from pipeline.runs.validation import Count, Figure, Untrusted

# More than any text or model here has, and more than a page would show.
_MOST_POSITIONS, _MOST_TOKENS, _MOST_SHOWN, _LONGEST_TEXT = 65_536, 256, 100, 100_000
# Nats with the darkest of so many shades.
_DARKEST_NATS = 7.0
_SHADES = 8
_POSITIONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000)
_MAX_PASSAGES = 8
_LONGEST = 2_000


class Passage(Untrusted):
    """A sequence of the test split, with the nats of each piece."""

    index: Count
    loss: Figure
    pieces: Annotated[list[str], Field(max_length=_MOST_POSITIONS + 1)]
    nats: list[Figure]

    @model_validator(mode="after")
    def _has_a_figure_for_each_piece(self) -> "Passage":
        if len(self.pieces) != len(self.nats):
            raise ValueError(f'"nats": expected {len(self.pieces)} figures, one for each piece, found {len(self.nats)}')
        return self


_Text = Annotated[str, Field(max_length=_LONGEST_TEXT)]


class Written(Untrusted):
    """A text that the model wrote."""

    temperature: Figure
    prompt: _Text
    text: _Text


class TextEvaluation(Untrusted):
    """Of a text. Losses are nats per token."""

    problem: Literal["next_token"]
    tokens: Literal["characters", "bytes"]
    vocabulary: Annotated[list[str], Field(max_length=_MOST_TOKENS)]
    characters: dict[str, Count]
    sequence_length: Count
    num_examples: Count
    loss: Figure
    bits: Figure
    perplexity: Figure
    accuracy: Figure
    position_loss: Annotated[list[Figure], Field(max_length=_MOST_POSITIONS)]
    passages: Annotated[list[Passage], Field(max_length=_MOST_SHOWN)]
    written: Annotated[list[Written], Field(max_length=_MOST_SHOWN)]
    data_warnings: list[tuple[str, str]] = []

    @property
    def one(self) -> str:
        """The name of a token."""
        return self.tokens.removesuffix("s")


def tiles(run: Run) -> Iterator[tuple[str, str]]:
    """The loss of a run, and what follows from it."""
    nats = run.test_loss
    yield "Test loss, nats", number(nats, 4)
    yield f"Bits a {run.units.one}", number(nats, 4, scale=1 / math.log(2))
    # The number of equally likely tokens that would surprise as much.
    yield "Perplexity", number(None if nats is None else math.exp(min(nats, 700)), 2)


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """The blocks of a run's evaluation."""
    facts: TextEvaluation = run.evaluation
    one, losses = facts.one, facts.position_loss
    places = [place for place in _POSITIONS if place < len(losses)] + [len(losses)] * bool(losses)
    rows = [(number(place), number(losses[place - 1], 3)) for place in places]
    by_place = Table(figures("place", "loss, nats"), rows, label=f"Loss by place: {name}", style="classes")
    blocks = [
        Box("part", titled("Test split", Facts(text_rows(facts)))),
        Box("part", [Text("Loss by place in the sequence", "heading"), by_place]),
    ]
    written = []
    for sample in facts.written:
        written.append(Text(f"Temperature {number(sample.temperature, 1)}", "note"))
        written.append(Text(readable(sample.text), "prose", lead=readable(sample.prompt)))
    passages = []
    for passage in facts.passages[:_MAX_PASSAGES]:
        where = f"Test sequence {number(passage.index)}: {number(passage.loss, 2)} nats a {one}"
        passages += [Text(where, "note"), Text(kind="prose", shades=_shades(passage.pieces, passage.nats))]
    note = Text(f"The darker, the more nats a {one} took; the first is not predicted.", "note")
    surprising = titled("The most surprising passages", note, *passages) if passages else []
    return [Box("pair", blocks), *titled("Written by the network", *written), *surprising]


def text_rows(facts: TextEvaluation) -> list[tuple[str, str]]:
    """The figures of the test split."""
    one = facts.one
    splits = ", ".join(f"{plain(split)} {number(count)}" for split, count in facts.characters.items())
    return [
        ("Test loss", f"{number(facts.loss, 4)} nats a {one}"),
        (f"Bits a {one}", number(facts.bits, 4)),
        ("Perplexity", number(facts.perplexity, 2)),
        ("Likeliest is right", percent(facts.accuracy, 2)),
        ("Vocabulary", f"{number(len(facts.vocabulary))} {plain(facts.tokens)}"),
        ("Sequences", f"{number(facts.num_examples)} of {number(facts.sequence_length)}, each without memory"),
        ("Predicted", splits),
    ]


def readable(text: str) -> str:
    """Untrusted text with its line ends, without other control or direction marks, of bounded length."""
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter)[0] != "C" else "\ufffd" for letter in text[:_LONGEST]
    )


def _shades(pieces: Sequence[str], nats: Sequence[float | None]) -> list[tuple[str, int]]:
    """The pieces with their shades. Pieces of one shade are joined."""
    shades = [0 if one is None else max(0, min(_SHADES, round(_SHADES * one / _DARKEST_NATS))) for one in nats]
    # A surprising line end must be visible.
    texts = [f"↵{piece}" if shade and piece == "\n" else piece for piece, shade in zip(pieces, shades, strict=True)]
    runs = groupby(zip(texts, shades, strict=True), key=itemgetter(1))
    return [(readable("".join(text for text, _ in run)), shade) for shade, run in runs]


def card(run: Run) -> dict[str, Any]:
    """The values of the cards. Examples are sequences."""
    facts: TextEvaluation | None = run.evaluation
    if not facts:
        return {"has_predicted": True}
    length, counts = facts.sequence_length, facts.characters.items()
    return {
        "counts": [(plain(split), count // length, count) for split, count in counts if length],
        "has_predicted": True,
        "rows": text_rows(facts),
    }
