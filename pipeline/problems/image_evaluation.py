"""Evaluation of an image classifier on the test split, from the predictions of the last epoch.

Figures go to evaluation.json. The most confident mistakes, a few examples of each label and augmented examples go to
PNG files of equal tiles, so that the report needs no records.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipeline.networks.model import LOGITS, PROBABILITIES, as_probabilities, trained_by_logits
from pipeline.problems.problem import Stream
from pipeline.problems.views import NONE, VIEWS, View
from pipeline.runs.metrics import AUGMENTED_NAME, EVALUATION_NAME, EXAMPLES_NAME, MISTAKES_NAME

CALIBRATION_BINS = 15
MAX_MISTAKES = 24
EXAMPLES_PER_LABEL = 3
MAX_EXAMPLE_LABELS = 10
MAX_AUGMENTED = 4
# Larger images are scaled down to it.
MAX_TILE_SIDE = 64
TILES_PER_ROW = 8


@dataclass(frozen=True)
class Predictions:
    """Predictions for a split, in its stored order.

    ``labels``: int32 (examples,), the true ones. ``outputs``: float32 (examples, num_labels), "logits" or
    "probabilities" as ``kind`` says, NaN if the model diverged.
    """

    labels: np.ndarray
    outputs: np.ndarray
    kind: str = PROBABILITIES

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Float32 (examples, num_labels)."""
        return as_probabilities(self.outputs, self.kind)


def predict(model: keras.Model, held_out: Stream, test_time_augmentation: str = NONE) -> Predictions:
    """Predictions of a compiled model (uint8 images → logits or probabilities), one pass per view of the images.

    Outputs are the weighted mean over the views, see views.py.
    """
    outputs = 0
    for view in VIEWS[test_time_augmentation]:
        seen = held_out.evaluation() if test_time_augmentation == NONE else _seen(held_out, view)
        outputs = outputs + np.float32(view.weight) * model.predict(seen, verbose=0).astype(np.float32)
    return Predictions(_labels(held_out), outputs, LOGITS if trained_by_logits(model) else PROBABILITIES)


def _seen(held_out: Stream, view: View) -> tf.data.Dataset:
    height, width = held_out.split.content_shape[:2]
    rows, columns = tf.constant(view.rows(height)), tf.constant(view.columns(width))

    def see(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(tf.gather(images, rows, axis=1), columns, axis=2), labels

    return held_out.evaluation().map(see)


def figures_of(model: keras.Model, predictions: Predictions) -> dict[str, float]:
    """The mean ``loss`` that the model was compiled with, and the ``accuracy``, as Keras's evaluate returns them."""
    losses = keras.losses.get(model.loss)(predictions.labels, keras.ops.convert_to_tensor(predictions.outputs))
    right = predictions.outputs.argmax(axis=1) == predictions.labels
    return {"loss": float(keras.ops.mean(losses)), "accuracy": float(right.mean())}


def evaluate(
    predictions: Predictions,
    test: Stream,
    manifest: Mapping,
    folder: Path,
    augmented: Sequence[Mapping[str, int]] = (),
) -> tuple[dict, np.ndarray]:
    """Write evaluation.json, mistakes.png and examples.png into ``folder``.

    Args:
        predictions: those for the test split.
        test: its input stream.
        manifest: that of the records.
        folder: the run's folder.
        augmented: the tiles of augmented.png, see ``picture_augmented``.

    Returns:
        The facts as written, see ``judge``, and the tiles of the mistakes, uint8 (mistakes, height, width, channels).
    """
    # A diverged model has no confidence.
    probabilities = np.nan_to_num(predictions.probabilities, nan=0.0)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1).clip(0, 1)
    labels, names = predictions.labels, manifest["label_names"]
    mistakes, examples = _most_confident_mistakes(labels, predicted, confidence), _first_of_each_label(labels)
    tiles = np.split(as_tiles(_images(test, np.concatenate([mistakes, examples]))), [len(mistakes)])
    tiles = dict(zip((MISTAKES_NAME, EXAMPLES_NAME), tiles, strict=True))
    height, width = tiles[MISTAKES_NAME].shape[1:3]
    facts = {
        "label_names": list(names),
        "label_counts": {split: dict(entry["label_counts"]) for split, entry in manifest["splits"].items()},
        **judge(labels, predicted, confidence, num_labels=len(names)),
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
        "without_duplicates": _without(manifest.get("findings", {}).get("test_in_train", ()), labels == predicted),
        "mistakes": [
            {
                "index": index,
                "label": int(labels[index]),
                "predicted": int(predicted[index]),
                "confidence": round(float(confidence[index]), 6),
            }
            for index in mistakes.tolist()
        ],
        "examples": [
            {"index": index, "label": int(labels[index]), "predicted": int(predicted[index])}
            for index in examples.tolist()
        ],
        "augmented": [dict(one) for one in augmented],
        "tiles": {"per_row": TILES_PER_ROW, "height": height, "width": width},
    }
    for name, images in tiles.items():
        if len(images):
            (folder / name).write_bytes(tf.io.encode_png(as_sheet(images)).numpy())
    (folder / EVALUATION_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts, tiles[MISTAKES_NAME]


def judge(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray, *, num_labels: int) -> dict:
    """Figures of predictions, as plain JSON data.

    Args:
        labels: int (examples,), from 0.
        predicted: int (examples,), the predicted label.
        confidence: float (examples,) from 0 to 1, the probability of the predicted label.
        num_labels: number of labels.

    Returns:
        ``num_examples``, ``accuracy``; ``confusion_matrix``, counts by true label (row) and predicted label (column);
        ``classes``, for each label ``examples``, ``precision``, ``recall`` and ``f1``, null for a division by zero;
        ``expected_calibration_error`` and the ``calibration`` bins.
    """
    confusion = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    right = labels == predicted
    bins = calibration(right, confidence)
    return {
        "num_examples": len(labels),
        "accuracy": float(right.mean()),
        "confusion_matrix": confusion.tolist(),
        "classes": _classes(confusion),
        "calibration": bins,
        "expected_calibration_error": expected_calibration_error(bins),
    }


def calibration(right: np.ndarray, confidence: np.ndarray) -> list[dict]:
    """Bins of equal width by confidence.

    Args:
        right: bool (examples,).
        confidence: float (examples,) from 0 to 1; 1 falls into the last bin.

    Returns:
        For each bin ``low``, ``high``, ``examples``, and the mean ``confidence`` and ``accuracy``, null if empty.
    """
    place = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    counts, sure, correct = (
        np.bincount(place, weights, minlength=CALIBRATION_BINS) for weights in (None, confidence, right)
    )
    return [
        {
            "low": index / CALIBRATION_BINS,
            "high": (index + 1) / CALIBRATION_BINS,
            "examples": int(count),
            "confidence": float(sure[index] / count) if count else None,
            "accuracy": float(correct[index] / count) if count else None,
        }
        for index, count in enumerate(counts)
    ]


def expected_calibration_error(bins: Sequence[Mapping]) -> float:
    """Mean distance of confidence and accuracy over bins, weighted by their examples (Guo et al. 2017, equation 3)."""
    total = sum(entry["examples"] for entry in bins)
    filled = (entry for entry in bins if entry["examples"])
    return sum(entry["examples"] * abs(entry["accuracy"] - entry["confidence"]) for entry in filled) / total


def _classes(confusion: np.ndarray) -> list[dict]:
    right, given, there = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    return [
        {
            "examples": int(there[label]),
            "precision": _share(right[label], given[label]),
            "recall": _share(right[label], there[label]),
            # The harmonic mean of precision and recall where both exist.
            "f1": _share(2 * right[label], given[label] + there[label]),
        }
        for label in range(len(confusion))
    ]


def _share(part: np.integer, whole: np.integer) -> float | None:
    return float(part / whole) if whole else None


def _without(duplicates: Sequence[int], right: np.ndarray) -> dict | None:
    """The accuracy without test examples that are in the train split too. None if there are none."""
    if not duplicates:
        return None
    kept = np.delete(right, duplicates)
    return {"num_examples": len(kept), "accuracy": _share(kept.sum(), len(kept))}


def _labels(test: Stream) -> np.ndarray:
    return np.concatenate([labels for _, labels in test.evaluation().as_numpy_iterator()])


def _most_confident_mistakes(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Indices of the mistakes to show, the most confident first. The order of equal ones is stable."""
    wrong = np.flatnonzero(labels != predicted)
    return wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_MISTAKES]


def _first_of_each_label(labels: np.ndarray) -> np.ndarray:
    return np.concatenate([np.flatnonzero(labels == label)[:EXAMPLES_PER_LABEL] for label in range(MAX_EXAMPLE_LABELS)])


def _images(test: Stream, indices: np.ndarray) -> np.ndarray:
    """Images of the split at these indices, uint8 (indices, height, width, channels), in one pass."""
    found = np.empty((len(indices), *test.split.content_shape), np.uint8)
    start = 0
    for images, _ in test.evaluation().as_numpy_iterator():
        here = (indices >= start) & (indices < start + len(images))
        found[here] = images[indices[here] - start]
        start += len(images)
    return found


def picture_augmented(train: Stream, folder: Path) -> list[dict[str, int]]:
    """Write augmented.png into ``folder``: a row per example of train, as stored and then as in the first epochs.

    Mixup mixes each image with the one above it, by the share of that epoch. In training it mixes an example with the
    one before it in the epoch's order.

    Returns:
        For each tile its ``index`` in the stored order of train, its ``label``, and its ``epoch``, from 1, or 0 for the
        example as it is stored. Empty without augmentation.
    """
    if not train.augmentation:
        return []
    images, labels = next(train.evaluation().take(1).as_numpy_iterator())
    # The first of each label, because alike images would show less.
    places = np.sort(np.unique(labels, return_index=True)[1])[:MAX_AUGMENTED]
    epochs = range(1, TILES_PER_ROW)
    # A GPU has no kernels for some of it.
    with tf.device("/CPU:0"):
        columns = [images[places], *(_in_epoch(train, images[places], places, epoch - 1) for epoch in epochs)]
    tiles = as_tiles(np.stack(columns, axis=1).reshape(-1, *images.shape[1:]))
    (folder / AUGMENTED_NAME).write_bytes(tf.io.encode_png(as_sheet(tiles)).numpy())
    return [
        {"index": int(place), "label": int(labels[place]), "epoch": epoch} for place in places for epoch in (0, *epochs)
    ]


def _in_epoch(train: Stream, images: np.ndarray, places: np.ndarray, epoch: int) -> np.ndarray:
    places = tf.constant(places)
    found = train.augmentation.images(tf.constant(images), places, epoch)
    if train.augmentation.mixes:
        found = train.augmentation.mixed_in_turn(found, places, epoch)
    return found.numpy()


def as_tiles(images: np.ndarray) -> np.ndarray:
    """The images, large ones scaled down: uint8 (images, height, width, channels)."""
    height, width = images.shape[1:3]
    scale = min(1.0, MAX_TILE_SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    if scale == 1.0 or not len(images):
        return images[:, : size[0], : size[1]]
    return tf.cast(tf.round(tf.image.resize(images, size, method="area")), tf.uint8).numpy()


def as_sheet(tiles: np.ndarray) -> np.ndarray:
    """One image of all tiles, row by row. The rest of the last row is black."""
    count, height, width, channels = tiles.shape
    rows = -(-count // TILES_PER_ROW)
    whole = np.zeros((rows * TILES_PER_ROW, height, width, channels), np.uint8)
    whole[:count] = tiles
    grid = whole.reshape(rows, TILES_PER_ROW, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, TILES_PER_ROW * width, channels)
