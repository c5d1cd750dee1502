"""Evaluation of an image classifier on the test split.

Figures go to evaluation.json. The most confident mistakes, a few examples of each label and augmented examples go to
PNG files of equal tiles, so that the report needs no records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipeline.models.model import PROBABILITIES, as_probabilities, kind_trained_on
from pipeline.problems.image_classification.test_time_augmentation import NONE, VIEWS, View
from pipeline.problems.problem import (
    AUGMENTED_NAME,
    EXAMPLES_NAME,
    MISTAKES_NAME,
    EvaluatedRun,
    EvaluationSummary,
    Stream,
    examples_at,
)

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


def predict(model: keras.Model, stream: Stream, test_time_augmentation: str = NONE) -> Predictions:
    """The weighted mean of one pass per view of the images, see test_time_augmentation.py."""
    outputs = 0
    for view in VIEWS[test_time_augmentation]:
        batches = stream.evaluation()
        if test_time_augmentation != NONE:
            batches = batches.map(_seen_in(view, stream.split.content_shape))
        outputs = outputs + np.float32(view.weight) * model.predict(batches, verbose=0).astype(np.float32)
    labels = np.concatenate([labels for _, labels in stream.evaluation().as_numpy_iterator()])
    return Predictions(labels, outputs, kind_trained_on(model))


def _seen_in(view: View, shape: tuple[int, ...]) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    rows, columns = map(tf.constant, view.sources(*shape[:2]))
    return lambda images, labels: (tf.gather(tf.gather(images, rows, axis=1), columns, axis=2), labels)


def figures(model: keras.Model, predictions: Predictions) -> dict[str, float]:
    """The mean ``loss`` that the model was compiled with, and the ``accuracy``, as Keras's evaluate returns them."""
    losses = keras.losses.get(model.loss)(predictions.labels, keras.ops.convert_to_tensor(predictions.outputs))
    right = predictions.outputs.argmax(axis=1) == predictions.labels
    return {"loss": float(keras.ops.mean(losses)), "accuracy": float(right.mean())}


def quick_figures(model: keras.Model, stream: Stream) -> dict[str, float]:
    """The same by Keras's evaluate, which stores no outputs."""
    found = model.evaluate(stream.evaluation(), verbose=0, return_dict=True)
    return {name: found[name] for name in ("loss", "accuracy")}


def evaluate(predictions: Predictions, run: EvaluatedRun) -> EvaluationSummary:
    """Write evaluation.json, mistakes.png, examples.png and augmented.png. See ``Problem.evaluation``."""
    manifest, test, folder = run.manifest, run.test, run.folder
    # A diverged model has no confidence.
    probabilities = np.nan_to_num(as_probabilities(predictions.outputs, predictions.kind), nan=0.0)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1).clip(0, 1)
    labels, names = predictions.labels, list(manifest["label_names"])
    wrong = np.flatnonzero(labels != predicted)
    mistakes = wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_MISTAKES].tolist()
    first = [np.flatnonzero(labels == label)[:EXAMPLES_PER_LABEL] for label in range(MAX_EXAMPLE_LABELS)]
    examples = np.concatenate(first).tolist()

    def entry(place: int) -> dict:
        return {"index": place, "label": int(labels[place]), "predicted": int(predicted[place])}

    images = [image for image, _ in examples_at(test, [*mistakes, *examples])]
    # There are no examples if the test split has none of the first labels.
    tiles = as_tiles(np.array(images, np.uint8).reshape(-1, *test.split.content_shape))
    facts = {
        "label_names": names,
        "label_counts": {split: dict(entry["label_counts"]) for split, entry in manifest["splits"].items()},
        **judge(labels, predicted, confidence, num_labels=len(names)),
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
        "without_duplicates": _without(manifest.get("findings", {}).get("test_in_train", ()), labels == predicted),
        "mistakes": [entry(place) | {"confidence": round(float(confidence[place]), 6)} for place in mistakes],
        "examples": [entry(place) for place in examples],
        "augmented": picture_augmented(run.train, folder),
        "tiles": {"per_row": TILES_PER_ROW, "height": tiles.shape[1], "width": tiles.shape[2]},
    }
    _write_sheet(folder / EXAMPLES_NAME, tiles[len(mistakes) :])
    _write_sheet(folder / MISTAKES_NAME, tiles[: len(mistakes)])
    run.write(facts)
    return EvaluationSummary(facts, {}, {"mistakes": tiles[: len(mistakes)]} if mistakes else {})


def judge(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray, *, num_labels: int) -> dict:
    """Figures of predictions, as plain JSON data.

    ``labels`` and ``predicted``: int (examples,), from 0. ``confidence``: float (examples,) from 0 to 1, the
    probability of the predicted label.

    Returns:
        ``num_examples``, ``accuracy``; ``confusion_matrix``, counts by true label (row) and predicted label (column);
        ``classes``, for each label ``examples``, ``precision``, ``recall`` and ``f1``, null for a division by zero;
        ``expected_calibration_error`` and the ``calibration`` bins.
    """
    confusion = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    right = labels == predicted
    return {
        "num_examples": len(labels),
        "accuracy": float(right.mean()),
        "confusion_matrix": confusion.tolist(),
        "classes": _classes(confusion),
        **calibration(right, confidence),
    }


def calibration(right: np.ndarray, confidence: np.ndarray) -> dict:
    """Bins of equal width by confidence, float (examples,) from 0 to 1. ``right``: bool (examples,).

    Returns:
        ``calibration``: for each bin ``low``, ``high``, ``examples``, and the mean ``confidence`` and ``accuracy``,
        null if empty. ``expected_calibration_error``: the mean distance of the two over the bins, weighted by their
        examples (Guo et al. 2017, equation 3).
    """
    place = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    counts, sure, correct = (
        np.bincount(place, weights, minlength=CALIBRATION_BINS) for weights in (None, confidence, right)
    )
    bins = [
        {
            "low": index / CALIBRATION_BINS,
            "high": (index + 1) / CALIBRATION_BINS,
            "examples": int(count),
            "confidence": _share(sure[index], count),
            "accuracy": _share(correct[index], count),
        }
        for index, count in enumerate(counts)
    ]
    error = float(np.abs(correct - sure).sum() / len(right))
    return {"calibration": bins, "expected_calibration_error": error}


def _classes(confusion: np.ndarray) -> list[dict]:
    return [
        {
            "examples": int(there),
            "precision": _share(right, given),
            "recall": _share(right, there),
            # The harmonic mean of precision and recall where both exist.
            "f1": _share(2 * right, given + there),
        }
        for right, given, there in zip(confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1), strict=True)
    ]


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _without(duplicates: Sequence[int], right: np.ndarray) -> dict | None:
    """The accuracy without test examples that are in the train split too. None if there are none."""
    if not duplicates:
        return None
    kept = np.delete(right, duplicates)
    return {"num_examples": len(kept), "accuracy": _share(kept.sum(), len(kept))}


def picture_augmented(train: Stream, folder: Path) -> list[dict[str, int]]:
    """Write augmented.png into ``folder``: a row per example of train, as stored and then as in the first epochs.

    Mixup mixes each image with the one above it. In training it mixes an example with the one before it.

    Returns:
        For each tile its ``index`` in the stored order of train, its ``label``, and its ``epoch``, from 1, or 0 for the
        example as it is stored. Empty without augmentation.
    """
    if not train.augmentation:
        return []
    images, labels = next(train.evaluation().take(1).as_numpy_iterator())
    # The first of each label, because alike images would show less.
    places = np.sort(np.unique(labels, return_index=True)[1])[:MAX_AUGMENTED]
    columns = [images[places]]
    for epoch in range(TILES_PER_ROW - 1):
        # A GPU has no kernels for some of it.
        with tf.device("/CPU:0"):
            found = train.augmentation.images(tf.constant(images[places]), tf.constant(places), epoch)
            if train.augmentation.mixes:
                found = train.augmentation.mixed_preview(found, tf.constant(places), epoch)
        columns.append(found.numpy())
    _write_sheet(folder / AUGMENTED_NAME, as_tiles(np.concatenate(np.stack(columns, axis=1))))
    return [
        {"index": place, "label": int(labels[place]), "epoch": epoch}
        for place in places.tolist()
        for epoch in range(TILES_PER_ROW)
    ]


def as_tiles(images: np.ndarray) -> np.ndarray:
    """The images, large ones scaled down: uint8 (images, height, width, channels)."""
    height, width = images.shape[1:3]
    scale = MAX_TILE_SIDE / max(height, width)
    if scale >= 1 or not len(images):
        return images
    size = max(1, round(height * scale)), max(1, round(width * scale))
    return tf.cast(tf.round(tf.image.resize(images, size, method="area")), tf.uint8).numpy()


def _write_sheet(path: Path, tiles: np.ndarray) -> None:
    """Write one image of all tiles, row by row. The rest of the last row is black. No tiles make no image."""
    if not len(tiles):
        return
    _, height, width, channels = tiles.shape
    whole = np.pad(tiles, [(0, -len(tiles) % TILES_PER_ROW), (0, 0), (0, 0), (0, 0)])
    rows = whole.reshape(-1, TILES_PER_ROW, height, width, channels).swapaxes(1, 2)
    sheet = rows.reshape(-1, TILES_PER_ROW * width, channels)
    path.write_bytes(tf.io.encode_png(sheet).numpy())
