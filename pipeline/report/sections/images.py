"""Evaluation of an image classifier, with pictures of its mistakes and confusions."""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from PIL import Image
from pydantic import model_validator

from pipeline.errors import DamagedArtifactError, plural
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, TEST_IMAGES_NAME
from pipeline.report.blocks import Block, Box, Gallery, Picture, titled
from pipeline.report.data.reading import Run
from pipeline.report.formats import number, plain
from pipeline.report.report import Report
from pipeline.report.sections.labels import (
    MAX_NAME,
    Example,
    Labeled,
    LabelEvaluation,
    Predictions,
    Shown,
    count_table,
    described,
    heading,
    label_blocks,
    label_names,
    matrix,
    worst_confusions,
)
from pipeline.runs.validation import Count, Untrusted, message, renamed

_MAX_CONFUSIONS, _MAX_PER_CONFUSION = 6, 4
_MAX_MISTAKES = 24
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
    """Return the blocks of a run's evaluation."""
    facts: ImageEvaluation = run.evaluation
    predictions = report.predictions_of(run)
    pictures = _test_images(facts, report.pictures_of(run).get("test_images", ()), predictions)
    mistakes = [picture for picture in pictures if picture.is_mistake][:_MAX_MISTAKES]
    # More images of each run would make the page too large.
    is_best = run is report.ordered()[0]
    images = [replace(picture, png=picture.png if is_best else "") for picture in pictures]
    uncertain = [picture for picture in images if picture.png and not picture.is_mistake]
    correct = titled("Correct with the least confidence", Gallery(uncertain))
    if confusion := matrix(facts, name):
        correct = [Box("pair", [Box("part", titled("Confusion matrix", confusion)), Box("part", correct)])]
    notes = [f"in epoch {number(item.epoch)}" if item.epoch else "as stored" for item in facts.augmented]
    pngs = report.pictures_of(run).get("augmented", ())
    augmented = [
        Picture(png, f"Training image {number(item.index)}, {label_names(facts)[item.label]}, {note}", note=note)
        for item, note, png in zip(facts.augmented, notes, pngs, strict=False)
    ]
    return [
        *heading(facts, len(mistakes)),
        Box("pictures", [Gallery(mistakes), *correct, *titled("Largest confusions", _confusions(facts, images))]),
        *label_blocks(report, run, name),
        *titled(f"Augmented: {plain(run.augment, 120)}", Gallery(augmented)),
    ]


def data_blocks(report: Report, run: Run) -> list[Block]:
    """Return examples of each label, and their number per label and split."""
    evaluation: ImageEvaluation = run.evaluation
    names, pictures = label_names(evaluation), report.pictures_of(run).get("examples", ())
    examples: dict[int, list[Picture]] = {}
    for example, png in zip(evaluation.examples, pictures, strict=False):
        name = plain(example.name, MAX_NAME) or f"test image {number(example.index)}"
        examples.setdefault(example.label, []).append(Picture(png, f"{names[example.label]}: {name}"))
    groups = Box("groups", [Gallery(images, names[label]) for label, images in examples.items()])
    # Earlier versions took the first images, without names.
    test_images = "Random test images" if any(example.name for example in evaluation.examples) else "Test images"
    return [*titled(f"{test_images} of each label", groups), count_table(evaluation)]


def _test_images(facts: ImageEvaluation, pngs: Sequence[str], predictions: Predictions | None) -> list[Picture]:
    """Return the pictured test images. Those without a PNG are listed too."""
    pictures = []
    for item, png in zip_longest(facts.test_images, pngs):
        name, title, labels = described(facts, item, predictions)
        pictures.append(Picture(png or "", f"{name}: {title}", title, name, labels, item.label != item.predicted))
    return pictures


def _confusions(facts: ImageEvaluation, pictures: Sequence[Picture]) -> Box:
    """Return the most frequent confusions with their images."""
    names, galleries = label_names(facts), []
    pairs = [(item.label, item.predicted) for item in facts.test_images]
    for true, predicted, count in worst_confusions(facts, _MAX_CONFUSIONS):
        images = [one for one, pair in zip(pictures, pairs, strict=True) if one.png and pair == (true, predicted)]
        title = f"{names[true]} predicted as {names[predicted]}: {plural(count, 'test image')}"
        galleries.append(Gallery(images[:_MAX_PER_CONFUSION], title))
    return Box("groups", galleries)


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
