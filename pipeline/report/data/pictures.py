"""Pictures of a run's evaluation, cut from sheets of tiles."""

import base64
import io
from pathlib import Path

from PIL import Image

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, TEST_IMAGES_NAME
from pipeline.report.data.labels import ImageEvaluation, Tiles
from pipeline.runs.validation import message

# Limits above the size of any page.
_MAX_TILES, _MAX_TILE_SIDE = 1_000, 512


def read_pictures(folder: Path, facts: ImageEvaluation) -> dict[str, list[str]]:
    """Read the tiles of each kind of images, in order, as base64 PNGs. DamagedArtifactError: A sheet lacks tiles."""
    sheets = {"test_images": TEST_IMAGES_NAME, "examples": EXAMPLES_NAME, "augmented": AUGMENTED_NAME}
    # An earlier version wrote only mistakes.
    if (folder / "mistakes.png").exists():
        sheets["test_images"] = "mistakes.png"
    return {kind: cut_sheet(folder / name, facts.tiles, len(getattr(facts, kind))) for kind, name in sheets.items()}


def cut_sheet(path: Path, tiles: Tiles, count: int) -> list[str]:
    """Read the tiles of a sheet as base64 PNGs. DamagedArtifactError: It lacks tiles."""
    per_row, height, width = tiles.per_row, tiles.height, tiles.width
    if not (0 < per_row <= _MAX_TILES and count <= _MAX_TILES and 0 < height <= _MAX_TILE_SIDE >= width > 0):
        raise DamagedArtifactError(message(path, f"expected a sheet of small tiles, found {dict(tiles)!r:.80}"))
    if not count:
        return []
    pngs = []
    try:
        with Image.open(path, formats=["PNG"]) as sheet:
            if sheet.size != (per_row * width, -(-count // per_row) * height):
                raise DamagedArtifactError(message(path, f"expected {count} tiles, found {sheet.size} pixels"))
            for index in range(count):
                left, top, buffer = index % per_row * width, index // per_row * height, io.BytesIO()
                sheet.crop((left, top, left + width, top + height)).save(buffer, "PNG", optimize=True)
                pngs.append(base64.b64encode(buffer.getvalue()).decode("ascii"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DamagedArtifactError(message(path, f"expected a PNG image: {error}")) from error
    return pngs
