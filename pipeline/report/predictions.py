"""Predictions: what evaluation.py left of a run, checked field by field, and its tiles as single images.

As untrusted as the rest of a run's folder. Runs made before there was an evaluation have none.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from pipeline.errors import DamagedArtefactError
from pipeline.metrics import EVALUATION_NAME, EXAMPLES_NAME, MISTAKES_NAME
from pipeline.report.fields import COUNT, FIGURE, OBJECT, check, message, parse, read

# More than any image-classification dataset has; the matrix of as many would not fit in memory.
_MOST_LABELS = 10_000
_MOST_TILES = 1_000
_MOST_TILE_SIDE = 512

_FIELDS = {
    "label_names": (list,),
    "label_counts": OBJECT,
    "num_examples": COUNT,
    "accuracy": FIGURE,
    "confusion_matrix": (list,),
    "classes": (list,),
    "calibration": (list,),
    "expected_calibration_error": FIGURE,
    "mistakes": (list,),
    "examples": (list,),
    "tiles": OBJECT,
}
_ENTRY_FIELDS = {
    "classes": {"examples": COUNT, **dict.fromkeys(("precision", "recall", "f1"), FIGURE)},
    "calibration": {"examples": COUNT, **dict.fromkeys(("low", "high", "confidence", "accuracy"), FIGURE)},
    "mistakes": {**dict.fromkeys(("index", "label", "predicted"), COUNT), "confidence": FIGURE},
    "examples": dict.fromkeys(("index", "label"), COUNT),
    "tiles": dict.fromkeys(("per_row", "height", "width"), COUNT),
}


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """The facts in a run's evaluation.json; None where it has none.

    Raises:
        DamagedArtefactError: it is not JSON, or a field is missing or not of its type; names file and field.
    """
    path = folder / EVALUATION_NAME
    if not path.exists():
        return None
    facts = parse(read(path), path.name, path)
    check(facts, _FIELDS, path.name, path)
    check(facts["tiles"], _ENTRY_FIELDS["tiles"], f'{path.name}, "tiles"', path)
    for name in ("classes", "calibration", "mistakes", "examples"):
        for number, entry in enumerate(facts[name], start=1):
            place = f'{path.name}, "{name}", entry {number}'
            if not isinstance(entry, dict):
                raise DamagedArtefactError(message(path, f"{place}: expected a JSON object, found {entry!r:.80}"))
            check(entry, _ENTRY_FIELDS[name], place, path)
    _check_labels(facts, path)
    return facts


def read_pictures(folder: Path, facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tiles of the ``mistakes`` and the ``examples``, in their order, each a PNG in base64.

    Raises:
        DamagedArtefactError: a file is missing or is not an image of as many tiles.
    """
    return {
        "mistakes": _cut(folder / MISTAKES_NAME, facts["tiles"], len(facts["mistakes"])),
        "examples": _cut(folder / EXAMPLES_NAME, facts["tiles"], len(facts["examples"])),
    }


def _check_labels(facts: Mapping[str, Any], path: Path) -> None:
    count = len(facts["label_names"])
    if not 1 <= count <= _MOST_LABELS or any(not isinstance(name, str) for name in facts["label_names"]):
        raise DamagedArtefactError(message(path, f'"label_names": expected 1 to {_MOST_LABELS} names, found {count}'))
    rows = facts["confusion_matrix"]
    if len(facts["classes"]) != count or len(rows) != count or any(not _is_counts(row, count) for row in rows):
        problem = f'"confusion_matrix" and "classes": expected counts for each of {count} labels'
        raise DamagedArtefactError(message(path, problem))
    for one in (*facts["mistakes"], *facts["examples"]):
        if any(not 0 <= one.get(name, 0) < count for name in ("label", "predicted")):
            raise DamagedArtefactError(message(path, f"expected labels below {count}, found {one!r:.80}"))
    for split, counts in facts["label_counts"].items():
        if not isinstance(counts, dict) or not _is_counts([*counts.values()], len(counts)):
            raise DamagedArtefactError(message(path, f'"label_counts": expected counts for {split!r:.80}'))


def _is_counts(row: Any, length: int) -> bool:
    return isinstance(row, list) and len(row) == length and all(type(one) is int and 0 <= one < 2**63 for one in row)


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


def worst_confusions(facts: Mapping[str, Any], limit: int) -> Sequence[tuple[int, int, int]]:
    """The pairs of labels most often taken for each other: (true, predicted, examples), the most frequent first."""
    pairs = [
        (true, given, count)
        for true, row in enumerate(facts["confusion_matrix"])
        for given, count in enumerate(row)
        if count and given != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]
