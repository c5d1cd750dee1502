"""Surprises: what problems/text_evaluation.py left of a run of text, by a schema of its own; it is as untrusted."""

from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from pipeline.runs.untrusted import Count, Figure, Untrusted

# More than any network here predicts at once, and more than a page would show.
_MOST_POSITIONS, _MOST_TOKENS, _MOST_SHOWN, _LONGEST = 65_536, 256, 100, 100_000


def _at_most(limit: int) -> AfterValidator:
    def check(value: list | str) -> list | str:
        if len(value) > limit:
            raise ValueError(f"expected at most {limit:,}, found {len(value):,}")
        return value

    return AfterValidator(check)


class _Passage(Untrusted):
    index: Count
    loss: Figure
    pieces: Annotated[list[str], _at_most(_MOST_POSITIONS + 1)]
    nats: list[Figure]

    @model_validator(mode="after")
    def _has_a_figure_for_each_piece(self) -> "_Passage":
        if len(self.pieces) != len(self.nats):
            raise ValueError(f'"nats": expected {len(self.pieces)} figures, one for each piece, found {len(self.nats)}')
        return self


class _Written(Untrusted):
    temperature: Figure
    prompt: Annotated[str, _at_most(_LONGEST)]
    text: Annotated[str, _at_most(_LONGEST)]


class TextEvaluation(Untrusted):
    """The facts in evaluation.json; losses are nats a token."""

    problem: Literal["next_token"]
    tokens: Literal["characters", "bytes"]
    vocabulary: Annotated[list[str], _at_most(_MOST_TOKENS)]
    characters: dict[str, Count]
    sequence_length: Count
    num_examples: Count
    loss: Figure
    bits: Figure
    perplexity: Figure
    accuracy: Figure
    position_loss: Annotated[list[Figure], _at_most(_MOST_POSITIONS)]
    passages: Annotated[list[_Passage], _at_most(_MOST_SHOWN)]
    written: Annotated[list[_Written], _at_most(_MOST_SHOWN)]
    data_warnings: list[tuple[str, str]] = []
