"""Pictures: the sheets of tiles that a run's evaluation left, as single images.

As untrusted as the rest of a run's folder.
"""

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from pipeline.errors import DamagedArtefactError
from pipeline.runs.metrics import AUGMENTED_NAME, EXAMPLES_NAME, MISTAKES_NAME
from pipeline.runs.untrusted import message

_MOST_TILES = 1_000
_MOST_TILE_SIDE = 512


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
