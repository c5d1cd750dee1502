"""The evaluation of a run, checked by a schema for each problem, and its pictures. Both are untrusted."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from PIL import Image
from pydantic import AfterValidator, model_validator

from pipeline.errors import DamagedArtefactError
from pipeline.problems.units import NEXT_TOKEN
from pipeline.runs.metrics import AUGMENTED_NAME, EVALUATION_NAME, EXAMPLES_NAME, MISTAKES_NAME
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, message, read_text

# More than any image-classification dataset has; the matrix of as many would not fit in memory.
_MOST_LABELS = 10_000


def _few_enough(names: list[str]) -> list[str]:
    if not 1 <= len(names) <= _MOST_LABELS:
        raise ValueError(f"expected 1 to {_MOST_LABELS} names")
    return names


class _Label(Untrusted):
    examples: Count
    precision: Figure
    recall: Figure
    f1: Figure


class _Bin(Untrusted):
    low: Figure
    high: Figure
    examples: Count
    confidence: Figure
    accuracy: Figure


class _Shown(Untrusted):
    index: Count
    label: Count


class _Mistake(_Shown):
    predicted: Count
    confidence: Figure


class _Example(_Shown):
    # Earlier versions did not say.
    predicted: Count | None = None


class _Augmented(_Shown):
    epoch: Count


class _Tiles(Untrusted):
    per_row: Count
    height: Count
    width: Count


class _WithoutDuplicates(Untrusted):
    num_examples: Count
    accuracy: Figure


class _Evaluation(Untrusted):
    label_names: Annotated[list[str], AfterValidator(_few_enough)]
    label_counts: dict[str, dict[str, Count]]
    num_examples: Count
    accuracy: Figure
    confusion_matrix: list[list[Count]]
    classes: list[_Label]
    calibration: list[_Bin]
    expected_calibration_error: Figure
    data_warnings: list[tuple[str, str]] = []
    without_duplicates: _WithoutDuplicates | None = None
    mistakes: list[_Mistake]
    examples: list[_Example]
    # Earlier versions augmented nothing.
    augmented: list[_Augmented] = []
    tiles: _Tiles

    @model_validator(mode="after")
    def _is_about_its_labels(self) -> "_Evaluation":
        count = len(self.label_names)
        if len(self.classes) != count or [len(row) for row in self.confusion_matrix] != [count] * count:
            raise ValueError(f'"confusion_matrix" and "classes": expected counts for each of {count} labels')
        shown = (*self.mistakes, *self.examples, *self.augmented)
        given = [one.predicted for one in (*self.mistakes, *self.examples) if one.predicted is not None]
        labels = [*(one.label for one in shown), *given]
        if any(label >= count for label in labels):
            raise ValueError(
                f'"mistakes", "examples" and "augmented": expected labels below {count}, found {max(labels)}'
            )
        return self


# More than any network here predicts at once, and more than a page would show.
_MOST_POSITIONS, _MOST_TOKENS, _MOST_SHOWN, _LONGEST = 65_536, 256, 100, 100_000
_MOST_TILES = 1_000
_MOST_TILE_SIDE = 512


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


_SCHEMAS = {NEXT_TOKEN: TextEvaluation}


def read_evaluation(folder: Path, problem: str) -> dict[str, Any] | None:
    """The facts in the evaluation.json of a run of this problem; None where it has none.

    Raises:
        DamagedArtefactError: it is not JSON, or a field is missing or not of its type; names file and field.
    """
    path = folder / EVALUATION_NAME
    if not path.exists():
        return None
    return checked(_SCHEMAS.get(problem, _Evaluation), read_text(path), path).model_dump()


def worst_confusions(facts: Mapping[str, Any], limit: int) -> Sequence[tuple[int, int, int]]:
    """The pairs of labels most often taken for each other: (true, predicted, examples), the most frequent first."""
    pairs = [
        (true, given, count)
        for true, row in enumerate(facts["confusion_matrix"])
        for given, count in enumerate(row)
        if count and given != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]


def read_pictures(folder: Path, facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tiles of the ``mistakes``, the ``examples`` and the ``augmented`` ones, in their order, each a PNG in base64.

    Raises:
        DamagedArtefactError: a file is missing or is not an image of as many tiles.
    """
    return {
        "mistakes": _cut(folder / MISTAKES_NAME, facts["tiles"], len(facts["mistakes"])),
        "examples": _cut(folder / EXAMPLES_NAME, facts["tiles"], len(facts["examples"])),
        "augmented": _cut(folder / AUGMENTED_NAME, facts["tiles"], len(facts["augmented"])),
    }


def _cut(path: Path, tiles: Mapping[str, int], count: int) -> list[str]:
    per_row, height, width = (tiles[name] for name in ("per_row", "height", "width"))
    if not (0 < per_row <= _MOST_TILES and count <= _MOST_TILES and 0 < height <= _MOST_TILE_SIDE >= width > 0):
        raise DamagedArtefactError(message(path, f"expected a sheet of small tiles, found {dict(tiles)!r:.80}"))
    if not count:
        return []
    try:
        with Image.open(path, formats=["PNG"]) as sheet:
            if sheet.size != (per_row * width, -(-count // per_row) * height):
                raise DamagedArtefactError(message(path, f"expected {count} tiles, found {sheet.size} pixels"))
            return [_png(sheet, place % per_row * width, place // per_row * height, width, height)
                    for place in range(count)]  # fmt: skip
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DamagedArtefactError(message(path, f"expected a PNG image: {error}")) from error


def _png(sheet: Image.Image, left: int, top: int, width: int, height: int) -> str:
    buffer = io.BytesIO()
    sheet.crop((left, top, left + width, top + height)).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
