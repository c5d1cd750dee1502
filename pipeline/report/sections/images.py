"""Evaluation of an image classifier, with mistakes, confusions, suspected label errors and calibration."""

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from PIL import Image
from pydantic import Field, model_validator

from pipeline.errors import DamagedArtifactError, plural
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, PREDICTIONS_NAME, TEST_IMAGES_NAME
from pipeline.report import drawings
from pipeline.report.blocks import Block, Box, Cell, Chart, Gallery, Links, Picture, Table, Text, numbers, titled, words
from pipeline.report.data.label_errors import suspected_label_errors
from pipeline.report.data.reading import Run
from pipeline.report.formats import MISSING, left_out, number, percent, plain, run_name
from pipeline.report.report import Report
from pipeline.runs.validation import Count, Number, Untrusted, message, renamed

# A larger matrix is unreadable, so its most frequent confusions are listed instead.
_MAX_MATRIX = 25
_MAX_CONFUSIONS, _MAX_PER_CONFUSION = 6, 4
_MAX_CLASSES = 100
_MAX_ON_CARD = 5
_MAX_CALIBRATIONS = 8
_MAX_MISTAKES, _MAX_SUSPECTS = 24, 20
# Letters of a file's name.
_MAX_NAME = 300
# Limits above the size of any supported dataset or page.
_MAX_LABELS, _MAX_TILES, _MAX_TILE_SIDE = 10_000, 1_000, 512


class LabelMetrics(Untrusted):
    """Metrics of a label."""

    examples: Count
    precision: Number
    recall: Number
    f1: Number


class Bin(Untrusted):
    """Predictions within a range of confidence."""

    low: Number
    high: Number
    examples: Count
    confidence: Number
    accuracy: Number


class _Labeled(Untrusted):
    index: Count
    label: Count


class Example(_Labeled):
    """A test image. Earlier versions lack the name of examples."""

    name: str = ""


class TestImage(_Labeled):
    """A pictured test image with its prediction."""

    predicted: Count
    confidence: Number


class Augmented(_Labeled):
    """An image as it was used in training."""

    epoch: Count


class Tiles(Untrusted):
    """The layout of a sheet of images."""

    per_row: Count
    height: Count
    width: Count


class WithoutDuplicates(Untrusted):
    """The accuracy on the test images that the train split does not contain."""

    num_examples: Count
    accuracy: Number


class ImageEvaluation(Untrusted):
    """Evaluation of an image classifier."""

    label_names: Annotated[list[str], Field(min_length=1, max_length=_MAX_LABELS)]
    label_counts: dict[str, dict[str, Count]]
    num_examples: Count
    accuracy: Number
    confusion_matrix: list[list[Count]]
    classes: list[LabelMetrics]
    calibration: list[Bin]
    expected_calibration_error: Number
    data_warnings: list[tuple[str, str]] = []
    without_duplicates: WithoutDuplicates | None = None
    # Test images with an identical image of another label.
    label_conflicts: list[Example] = []
    test_images: list[TestImage] = renamed("test_images", "mistakes")
    examples: list[Example]
    augmented: list[Augmented] = []
    tiles: Tiles

    @model_validator(mode="after")
    def _check_labels(self) -> "ImageEvaluation":
        count = len(self.label_names)
        if len(self.classes) != count or [len(row) for row in self.confusion_matrix] != [count] * count:
            raise ValueError(f'"confusion_matrix" and "classes": expected counts for each of {count} labels')
        tested = (*self.label_conflicts, *self.test_images, *self.examples)
        labels = (item.label for item in (*tested, *self.augmented))
        if (greatest := max((*labels, *(item.predicted for item in self.test_images)), default=0)) >= count:
            names = '"label_conflicts", "test_images", "examples" and "augmented"'
            raise ValueError(f"{names}: expected labels below {count}, found {greatest}")
        if (greatest := max((item.index for item in tested), default=-1)) >= self.num_examples:
            names = '"label_conflicts", "test_images" and "examples"'
            raise ValueError(f"{names}: expected indices below {self.num_examples}, found {greatest}")
        return self


@dataclass(frozen=True)
class Predictions:
    """Predictions of the test examples, in stored order.

    ``labels``, ``predicted`` and ``second`` are indices of labels, int32 (examples,). The probabilities of the
    predicted, the second and the actual label are float64 (examples,).
    """

    keys: list[str]
    labels: np.ndarray
    predicted: np.ndarray
    second: np.ndarray
    probability: np.ndarray
    second_probability: np.ndarray
    label_probability: np.ndarray


def read_predictions(folder: Path, facts: ImageEvaluation) -> Predictions | None:
    """Read the predictions of a run, None if an earlier version wrote it. Raises DamagedArtifactError."""
    path, shares = folder / PREDICTIONS_NAME, ("probability", "second_probability", "label_probability")
    if not path.exists():
        return None
    types = dict.fromkeys(("key", "label", "predicted", "second"), pa.string()) | dict.fromkeys(shares, pa.float64())
    try:
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=[*types]),
        )
    except (OSError, pa.ArrowException) as error:
        raise DamagedArtifactError(message(path, f"expected a table of predictions: {error}")) from error
    if table.num_rows != facts.num_examples:
        raise DamagedArtifactError(message(path, f"expected {facts.num_examples} rows, found {table.num_rows}"))
    names = pa.array(facts.label_names)
    labels = [pyarrow.compute.index_in(table[name], names) for name in ("label", "predicted", "second")]
    probabilities = [table[name].to_numpy() for name in shares]
    # A comparison with NaN is false.
    if any(each.null_count for each in labels) or not all(((p >= 0) & (p <= 1)).all() for p in probabilities):
        raise DamagedArtifactError(message(path, "expected labels of evaluation.json and probabilities from 0 to 1"))
    return Predictions(table["key"].to_pylist(), *(each.to_numpy() for each in labels), *probabilities)


def label_names(facts: ImageEvaluation) -> list[str]:
    """Return the labels of an evaluation."""
    return [plain(name, 24) for name in facts.label_names]


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run's evaluation. Those of the best run have the suspected label errors."""
    facts: ImageEvaluation = run.evaluation
    predictions = report.predictions_of(run)
    pictures = _test_images(facts, report.pictures_of(run).get("test_images", ()), predictions)
    mistakes = [picture for picture in pictures if picture.is_mistake][:_MAX_MISTAKES]
    is_best = run is report.ordered()[0]
    # More images of each run would make the page too large.
    images = [replace(picture, png=picture.png if is_best else "") for picture in pictures]
    uncertain = [picture for picture in images if picture.png and not picture.is_mistake]
    wrong = sum(sum(row) - row[true] for true, row in enumerate(facts.confusion_matrix))
    shown = f", the {number(len(mistakes))} most confident first" if mistakes else ""
    correct = titled("Correct with the least confidence", Gallery(uncertain))
    if matrix := _matrix(facts, name):
        correct = [Box("pair", [Box("part", titled("Confusion matrix", matrix)), Box("part", correct)])]
    columns = [*words("label"), *numbers("test images", "precision", "recall", "F1")]
    classes = Table(columns, class_rows(facts), label=f"By label: {name}", style="classes")
    more = Text(left_out(len(facts.classes) - _MAX_CLASSES, "more label"))
    calibration = f"Calibration: expected error {percent(facts.expected_calibration_error)}"
    chart = Chart(
        f"Calibration of {run_name(run)} over {number(facts.num_examples)} images",
        partial(drawings.plot_calibration, facts.calibration),
        [
            f"confidence {percent(interval.confidence)}, accuracy {percent(interval.accuracy)}"
            for interval in facts.calibration
            if interval.accuracy is not None
        ],
    )
    unique, duplicates = facts.without_duplicates, ""
    if unique:
        duplicates = (
            f"The test accuracy is {percent(facts.accuracy)} on all images, {percent(unique.accuracy)} on the "
            f"{number(unique.num_examples)} that the train split does not contain."
        )
    notes = [f"in epoch {number(item.epoch)}" if item.epoch else "as stored" for item in facts.augmented]
    pngs = report.pictures_of(run).get("augmented", ())
    augmented = [
        Picture(png, f"Training image {number(item.index)}, {label_names(facts)[item.label]}, {note}", note=note)
        for item, note, png in zip(facts.augmented, notes, pngs, strict=False)
    ]
    # Drawings of many runs would dominate the page.
    is_drawn = run in report.requested()[:_MAX_CALIBRATIONS]
    return [
        Text(f"Mistakes: {number(wrong)} of {number(facts.num_examples)} test images{shown}", "heading"),
        Text(duplicates, "note"),
        Box("pictures", [Gallery(mistakes), *correct, *titled("Largest confusions", _confusions(facts, images))]),
        *(_label_errors(facts, predictions) if predictions and is_best else ()),
        Box("fold", [classes, more], "By label"),
        Box("fold", [chart], calibration) if is_drawn else Text(calibration),
        *titled(f"Augmented: {plain(run.augment, 120)}", Gallery(augmented)),
    ]


def _test_images(facts: ImageEvaluation, pngs: Sequence[str], predictions: Predictions | None) -> list[Picture]:
    """Return the pictured test images. Those without a PNG are listed too."""
    names, pictures = label_names(facts), []
    for item, png in zip_longest(facts.test_images, pngs):
        index, actual, predicted = item.index, names[item.label], names[item.predicted]
        is_mistake, share = item.label != item.predicted, percent(item.confidence)
        name = plain(predictions.keys[index], _MAX_NAME) if predictions else f"test image {number(index)}"
        title = f"predicted {predicted} ({share}), actual {actual}"
        if not is_mistake:
            title = f"predicted and actual {actual} ({share})"
        if predictions and is_mistake:
            title += f" ({percent(predictions.label_probability[index])})"
        elif predictions:
            title += f", second {names[predictions.second[index]]} ({percent(predictions.second_probability[index])})"
        pictures.append(Picture(png or "", f"{name}: {title}", title, name, (actual, predicted), is_mistake))
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


def _label_errors(facts: ImageEvaluation, predictions: Predictions) -> list[Block]:
    """Return the suspected label errors, with a file of all of them. Empty without any."""
    labels, fields = facts.label_names, ("labels", "predicted", "probability", "label_probability")
    copies = {conflict.index: (conflict.name, labels[conflict.label]) for conflict in facts.label_conflicts}
    suspects = suspected_label_errors(*(getattr(predictions, field) for field in fields), copies).tolist()
    if not suspects:
        return []
    file, lines = io.StringIO(newline=""), []
    writer = csv.writer(file)
    writer.writerow(("key", "label", "label_probability", "predicted", "probability", "copy", "copy_label"))
    for index in suspects:
        pairs = [
            (labels[predictions.labels[index]], predictions.label_probability[index]),
            (labels[predictions.predicted[index]], predictions.probability[index]),
        ]
        key, (copy, copy_label) = predictions.keys[index], copies.get(index, ("", ""))
        writer.writerow((key, *pairs[0], *pairs[1], copy, copy_label))
        note = f"An identical image has the label {plain(copy_label, 24)}: {plain(copy, _MAX_NAME)}" if copy else ""
        lines.append((Cell(plain(key, _MAX_NAME), [note]), *(f"{plain(name, 24)} ({percent(p)})" for name, p in pairs)))
    columns, shown = words("test image", "actual", "predicted"), lines[:_MAX_SUSPECTS]
    table = Table(columns, shown, label="Suspected label errors", style="classes files")
    return [
        Text(f"Suspected label errors: {number(len(lines))} of {number(facts.num_examples)} test images", "heading"),
        Text("Candidates only. Check them by eye. A less accurate model suspects more labels."),
        Links([("label_errors.csv", "label_errors.csv")], {"label_errors.csv": file.getvalue()}),
        Box("fold", [table], f"The {number(len(shown))} most suspect"),
    ]


def _matrix(facts: ImageEvaluation, name: str) -> Table | None:
    names, rows = label_names(facts), []
    if len(names) > _MAX_MATRIX:
        return None
    for true, (label, counts) in enumerate(zip(names, facts.confusion_matrix, strict=True)):
        shares = [round(count / max(1, sum(counts)), 3) for count in counts]
        cells = [Cell(number(count), share=share) for count, share in zip(counts, shares, strict=True)]
        cells[true] = replace(cells[true], is_right=True)
        rows.append([label, *cells])
    columns = [*words("actual ↓ predicted →"), *numbers(*names)]
    caption = "Test images by actual label (rows) and predicted label (columns). The diagonal is correct."
    return Table(columns, rows, label=f"Confusion matrix: {name}", caption=caption, style="matrix")


def class_rows(facts: ImageEvaluation) -> list[tuple[str, ...]]:
    """Return (label, test images, precision, recall, F1) per label."""
    return [
        (name, number(entry.examples), percent(entry.precision), percent(entry.recall), percent(entry.f1))
        for name, entry in zip(label_names(facts), facts.classes[:_MAX_CLASSES], strict=False)
    ]


def card(run: Run) -> dict[str, Any]:
    """Return the values of the cards."""
    facts: ImageEvaluation | None = run.evaluation
    if not facts:
        return {"rows": [("expected calibration error", MISSING)]}
    counts = {plain(split): sum(labels.values()) for split, labels in facts.label_counts.items()}
    calibration = ("expected calibration error", percent(facts.expected_calibration_error))
    classes = [(f"{name}: precision, recall, F1", ", ".join(shares)) for name, _, *shares in class_rows(facts)]
    names = label_names(facts)
    return {
        "labels": [plain(name) for name in facts.label_names],
        "counts": [(split, count, count) for split, count in counts.items()],
        "rows": [calibration, *classes],
        "confusions": [
            (names[true], names[predicted], number(count))
            for true, predicted, count in worst_confusions(facts, _MAX_ON_CARD)
        ],
    }


def worst_confusions(facts: ImageEvaluation, limit: int) -> Sequence[tuple[int, int, int]]:
    """Return pairs of confused labels as (true, predicted, examples), most frequent first."""
    pairs = [
        (true, predicted, count)
        for true, row in enumerate(facts.confusion_matrix)
        for predicted, count in enumerate(row)
        if count and predicted != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]


def read_pictures(folder: Path, facts: ImageEvaluation) -> dict[str, list[str]]:
    """Read the tiles of each kind of images, in order, as base64 PNGs. DamagedArtifactError: A sheet lacks tiles."""
    sheets = {"test_images": TEST_IMAGES_NAME, "examples": EXAMPLES_NAME, "augmented": AUGMENTED_NAME}
    # An earlier version wrote only mistakes.
    if (folder / "mistakes.png").exists():
        sheets["test_images"] = "mistakes.png"
    return {kind: _cut(folder / name, facts.tiles, len(getattr(facts, kind))) for kind, name in sheets.items()}


def _cut(path: Path, tiles: Tiles, count: int) -> list[str]:
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
