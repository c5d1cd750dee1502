"""Evaluation of an image classifier, with its pictures."""

import base64
import io
from pathlib import Path
from typing import ClassVar

from PIL import Image
from pydantic import model_validator

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, TEST_IMAGES_NAME
from pipeline.report.blocks import Block, Gallery, Picture, titled
from pipeline.report.data.reading import Run
from pipeline.report.formats import number, plain
from pipeline.report.report import Report
from pipeline.report.sections import labels
from pipeline.report.sections.labels import Example, Labeled, LabelEvaluation, Shown
from pipeline.runs.validation import Count, Untrusted, message, renamed

# Limits above the size of any page.
_MAX_TILES, _MAX_TILE_SIDE = 1_000, 512


class Augmented(Labeled):
    """An image as it was used in training."""

    epoch: Count


class Tiles(Untrusted):
    """The layout of a sheet of images."""

    per_row: Count
    height: Count
    width: Count


class ImageEvaluation(LabelEvaluation):
    """Evaluation of an image classifier."""

    noun: ClassVar[str] = "image"
    shown_fields: ClassVar[tuple[str, ...]] = ("test_images", "examples")

    test_images: list[Shown] = renamed("test_images", "mistakes")
    examples: list[Example]
    augmented: list[Augmented] = []
    tiles: Tiles

    @model_validator(mode="after")
    def _check_augmented(self) -> "ImageEvaluation":
        count = len(self.label_names)
        if (greatest := max((item.label for item in self.augmented), default=0)) >= count:
            raise ValueError(f'"augmented": expected labels below {count}, found {greatest}')
        return self


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run's evaluation, with augmented training images."""
    facts: ImageEvaluation = run.evaluation
    names, pngs = labels.label_names(facts), report.pictures_of(run).get("augmented", ())
    augmented = []
    for item, png in zip(facts.augmented, pngs, strict=False):
        note = f"in epoch {number(item.epoch)}" if item.epoch else "as stored"
        alternative = f"Training image {number(item.index)}, {names[item.label]}, {note}"
        augmented.append(Picture(png, alternative, note=note))
    blocks = labels.evaluation_blocks(report, run, name)
    return [*blocks, *titled(f"Augmented: {plain(run.augment, 120)}", Gallery(augmented))]


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
