"""Text: the evaluation of a run of text, as rows; what surprises a network is shown as shades behind the letters."""

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.wording.formats import number, percent, plain

# A surprise, in nats, that has the darkest of so many shades.
_DARKEST_NATS = 7.0
_SHADES = 8
POSITION_ROWS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000)
MAX_PASSAGES = 8
_LONGEST = 2_000


def is_text(facts: Mapping[str, Any] | None) -> bool:
    """Whether an evaluation is one of text."""
    return bool(facts) and facts.get("problem") == "next_token"


def bits(nats: float | None) -> str:
    """A loss in nats as bits."""
    return number(None if nats is None else nats / math.log(2), 4)


def perplexity(nats: float | None) -> str:
    """How many tokens, all as likely, would surprise as much."""
    return number(None if nats is None else math.exp(min(nats, 700)), 2)


def text_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures of the test split: (what, figure)."""
    one = units_of_run(facts).one
    splits = ", ".join(f"{plain(split)} {number(count)}" for split, count in facts["characters"].items())
    return [
        ("Test loss", f"{number(facts['loss'], 4)} nats a {one}"),
        (f"Bits a {one}", number(facts["bits"], 4)),
        ("Perplexity", number(facts["perplexity"], 2)),
        ("Likeliest is right", percent(facts["accuracy"], 2)),
        ("Vocabulary", f"{number(len(facts['vocabulary']))} {plain(facts['tokens'])}"),
        ("Sequences", f"{number(facts['num_examples'])} of {number(facts['sequence_length'])}, each without memory"),
        ("Predicted", splits),
    ]


def position_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Loss by how many tokens came before: (which, nats)."""
    losses = facts["position_loss"]
    shown = [place for place in POSITION_ROWS if place < len(losses)]
    places = list(dict.fromkeys([*shown, len(losses)])) if losses else []
    return [(number(place), number(losses[place - 1], 3)) for place in places]


def passage_rows(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The most surprising passages: where, loss, and (text, shade from 0, surprise) of runs of letters of one shade."""
    return [
        {
            "index": number(one["index"]),
            "loss": number(one["loss"], 2),
            "text": readable("".join(one["pieces"])),
            "parts": _parts(one["pieces"], one["nats"]),
        }
        for one in facts["passages"][:MAX_PASSAGES]
    ]


def written_rows(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What the network wrote: (temperature, prompt, text)."""
    return [(number(one["temperature"], 1), readable(one["prompt"]), readable(one["text"])) for one in facts["written"]]


def readable(text: str) -> str:
    """Text of unknown origin with its line ends, without other control or direction marks, of bounded length."""
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter)[0] != "C" else "\ufffd" for letter in text[:_LONGEST]
    )


def _parts(pieces: Sequence[str], nats: Sequence[float | None]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for piece, one in zip(pieces, nats, strict=True):
        shade = 0 if one is None else max(0, min(_SHADES, round(_SHADES * one / _DARKEST_NATS)))
        # A line end that surprises must be seen.
        text = f"↵{piece}" if shade and piece == "\n" else piece
        if found and found[-1][1] == shade:
            found[-1] = (found[-1][0] + text, shade)
        else:
            found.append((text, shade))
    return [(readable(text), shade) for text, shade in found]
