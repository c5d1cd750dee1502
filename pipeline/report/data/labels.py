"""Evaluation, predictions and pictures of a classifier, and the label errors that the predictions suggest.

Label errors are suspected by confident learning (Northcutt, Jiang and Chuang 2021, arXiv 1911.00068).
"""

import base64
import io
import operator
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
from PIL import Image
from pydantic import Field, model_validator

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, PREDICTIONS_NAME, TEST_IMAGES_NAME
from pipeline.report.data.champion import Answers
from pipeline.runs.predictions import read_table
from pipeline.runs.validation import Count, Number, Untrusted, message, renamed

# Limits above the size of any supported dataset or page.
_MAX_LABELS, _MAX_EXCERPT, _MAX_TILES, _MAX_TILE_SIDE = 10_000, 1_000, 1_000, 512


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


class Labeled(Untrusted):
    """An example and its label. Only texts have a ``text``."""

    index: Count
    label: Count
    text: Annotated[str, Field(max_length=_MAX_EXCERPT, exclude_if=operator.not_)] = ""


class Example(Labeled):
    """A test example. Earlier versions lack the name."""

    name: str = ""


class Shown(Labeled):
    """A test example with its prediction."""

    predicted: Count
    confidence: Number


class WithoutDuplicates(Untrusted):
    """The accuracy on the test examples that the train split does not contain."""

    num_examples: Count
    accuracy: Number


class SecondLabel(Untrusted):
    """Metrics and curves of the second of two labels, whose threshold is that of the validation split, or 0.5."""

    roc_auc: Number
    average_precision: Number
    threshold: Number
    threshold_of: Literal["", "validation"]
    accuracy: Number
    precision: Number
    recall: Number
    f1: Number
    roc: list[tuple[float, float]]
    precision_recall: list[tuple[float, float]]


class LabelEvaluation(Untrusted):
    """Evaluation of a classifier. Subclasses add the fields with the examples to show."""

    #: Name of an example, and of the fields with test examples, those with a prediction first.
    noun: ClassVar[str] = "example"
    shown_fields: ClassVar[tuple[str, ...]] = ()

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
    # Also without images that differ little from a train image.
    without_near_duplicates: WithoutDuplicates | None = None
    binary: SecondLabel | None = None
    # Test examples with identical content and another label.
    label_conflicts: list[Example] = []

    @model_validator(mode="after")
    def _check_labels(self) -> "LabelEvaluation":
        count = len(self.label_names)
        if len(self.classes) != count or [len(row) for row in self.confusion_matrix] != [count] * count:
            raise ValueError(f'"confusion_matrix" and "classes": expected counts for each of {count} labels')
        for name in ("label_conflicts", *self.shown_fields, "augmented"):
            for item in getattr(self, name, ()):
                if (label := max(item.label, getattr(item, "predicted", 0))) >= count:
                    raise ValueError(f'"{name}": expected labels below {count}, found {label}')
                # Augmented examples are those of the train split.
                if item.index >= self.num_examples and name != "augmented":
                    raise ValueError(f'"{name}": expected indices below {self.num_examples}, found {item.index}')
        return self


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


class LabeledTextEvaluation(LabelEvaluation):
    """Evaluation of a text classifier. Texts have up to ``text_length`` bytes in the records."""

    noun: ClassVar[str] = "text"
    shown_fields: ClassVar[tuple[str, ...]] = ("test_texts", "examples")

    test_texts: list[Shown]
    examples: list[Example]
    text_length: Count
    longer_texts: Count


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


def read_predictions(folder: Path, facts: LabelEvaluation) -> Predictions | None:
    """Read the predictions of a run, None if an earlier version wrote it. Raises DamagedArtifactError."""
    path, shares = folder / PREDICTIONS_NAME, ("probability", "second_probability", "label_probability")
    if not path.exists():
        return None
    types = dict.fromkeys(("key", "label", "predicted", "second"), pa.string()) | dict.fromkeys(shares, pa.float64())
    table = read_table(path, types, facts.num_examples)
    names = pa.array(facts.label_names)
    labels = [pyarrow.compute.index_in(table[name], names) for name in ("label", "predicted", "second")]
    probabilities = [table[name].to_numpy() for name in shares]
    # A comparison with NaN is false.
    if any(each.null_count for each in labels) or not all(((p >= 0) & (p <= 1)).all() for p in probabilities):
        raise DamagedArtifactError(message(path, "expected labels of evaluation.json and probabilities from 0 to 1"))
    return Predictions(table["key"].to_pylist(), *(each.to_numpy() for each in labels), *probabilities)


def read_answers(folder: Path, facts: LabelEvaluation) -> Answers | None:
    """Read the right and wrong predictions of a run, and those of each label."""
    if (found := read_predictions(folder, facts)) is None:
        return None
    right = found.predicted == found.labels
    labels = {name: right[found.labels == index] for index, name in enumerate(facts.label_names)}
    return Answers((facts.label_names, found.keys, found.labels.tolist()), right, labels)


def suspected_label_errors(
    labels: np.ndarray,
    predicted: np.ndarray,
    probability: np.ndarray,
    label_probability: np.ndarray,
    conflicts: Collection[int] = (),
) -> np.ndarray:
    """Return the indices of examples whose label may be wrong, int64 (suspects,).

    A label is suspect if the prediction is another label, and at least as probable as that label is on average on the
    examples that have it. The order is by the difference of the probabilities of the two labels, largest first.

    Args:
        labels: Labels of the examples, int (examples,).
        predicted: Most probable labels, int (examples,).
        probability: Probabilities of ``predicted``, float (examples,) from 0 to 1.
        label_probability: Probabilities of ``labels``, float (examples,) from 0 to 1.
        conflicts: Indices of examples that are suspect in any case, and come first.
    """
    counts = np.bincount(labels, minlength=predicted.max(initial=0) + 1)
    sums = np.bincount(labels, label_probability, minlength=len(counts))
    # A label without examples has no threshold. The mean of equal probabilities may be greater than each of them.
    thresholds = np.divide(sums, counts, out=np.full(len(counts), np.inf), where=counts > 0) - 1e-6
    is_conflict = np.isin(np.arange(len(labels)), [*conflicts])
    suspects = np.flatnonzero(is_conflict | ((predicted != labels) & (probability >= thresholds[predicted])))
    margin = probability[suspects] - label_probability[suspects]
    return suspects[np.lexsort((-margin, ~is_conflict[suspects]))]


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
