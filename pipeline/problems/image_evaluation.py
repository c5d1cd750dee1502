"""Image evaluation: what a trained network gets right and wrong on the test split (image_classification's aid).

Made once, of the predictions that the last epoch's figures come from: one more pass over the labels, one for the images
that are shown. The figures go to evaluation.json. The most confident mistakes and a few examples of each label go to
two PNG files, tiles of one size row by row, so that the run's folder says all there is to say without the records it
was made from.
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
from pipeline.runs.metrics import EVALUATION_NAME, EXAMPLES_NAME, MISTAKES_NAME

CALIBRATION_BINS = 15
MAX_MISTAKES = 24
EXAMPLES_PER_LABEL = 3
MAX_EXAMPLE_LABELS = 10
# Larger images are scaled down to it: the tiles are there to be recognised, the records hold the pixels.
MAX_TILE_SIDE = 64
TILES_PER_ROW = 8


@dataclass(frozen=True)
class Predictions:
    """What a network says of a split, in its stored order.

    ``labels``: int32 (examples,), the true ones. ``outputs``: float32 (examples, num_labels), of the ``kind`` that the
    network gives, "logits" or "probabilities"; NaN where it diverged.
    """

    labels: np.ndarray
    outputs: np.ndarray
    kind: str = PROBABILITIES

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Float32 (examples, num_labels)."""
        return as_probabilities(self.outputs, self.kind)


def predict(model: keras.Model, held_out: Stream, test_time_augmentation: str = NONE) -> Predictions:
    """A pass of a compiled network (uint8 images → logits or probabilities) over a split for each view of its images.

    Outputs are the weighted mean of the views', see views.py.
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
    """The mean ``loss``, of the kind the model was compiled with, and the ``accuracy``: those of Keras's evaluate."""
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
    """Look closely at the predictions; leaves evaluation.json, mistakes.png and examples.png in ``folder``.

    Args:
        predictions: those for the test split.
        test: its input stream.
        manifest: that of the records.
        folder: the run's folder.
        augmented: the tiles of augmented.png, as augmented.py gives them.

    Returns:
        The facts as written, see ``judge``, and the tiles of the mistakes, uint8 (mistakes, height, width, channels).
    """
    # A diverged network gives no probabilities: it is then sure of nothing.
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
    """The figures of one pass of predictions, as plain JSON data.

    Args:
        labels: int (examples,), from 0.
        predicted: int (examples,), the label given.
        confidence: float (examples,) from 0 to 1, the probability of the label given.
        num_labels: how many labels there are.

    Returns:
        ``num_examples``, ``accuracy``; ``confusion_matrix``, counts by true label (row) and predicted label (column);
        ``classes``, for each label ``examples``, ``precision``, ``recall`` and ``f1``, null where nothing was there
        to divide by; ``expected_calibration_error`` and the ``calibration`` bins it is the mean of.
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
    """Bins of equal width by confidence: how sure the network was there, and how often right.

    Args:
        right: bool (examples,).
        confidence: float (examples,) from 0 to 1; 1 falls into the last bin.

    Returns:
        For each bin ``low``, ``high``, ``examples``, and the mean ``confidence`` and ``accuracy``, null where it is
        empty.
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
            # Of precision and recall the harmonic mean, which is this where both exist.
            "f1": _share(2 * right[label], given[label] + there[label]),
        }
        for label in range(len(confusion))
    ]


def _share(part: np.integer, whole: np.integer) -> float | None:
    return float(part / whole) if whole else None


def _without(duplicates: Sequence[int], right: np.ndarray) -> dict | None:
    """The accuracy on the test examples that the train split does not hold too; None where it holds none."""
    if not duplicates:
        return None
    kept = np.delete(right, duplicates)
    return {"num_examples": len(kept), "accuracy": _share(kept.sum(), len(kept))}


def _labels(test: Stream) -> np.ndarray:
    """Every label of the split, int32 (examples,)."""
    return np.concatenate([labels for _, labels in test.evaluation().as_numpy_iterator()])


def _most_confident_mistakes(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Indices of the mistakes to show, the most confident first; of two that are as sure the first."""
    wrong = np.flatnonzero(labels != predicted)
    return wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_MISTAKES]


def _first_of_each_label(labels: np.ndarray) -> np.ndarray:
    """Indices of the examples to show, label by label."""
    return np.concatenate([np.flatnonzero(labels == label)[:EXAMPLES_PER_LABEL] for label in range(MAX_EXAMPLE_LABELS)])


def _images(test: Stream, indices: np.ndarray) -> np.ndarray:
    """The images of the split at these indices, uint8 (indices, height, width, channels); one pass over it."""
    found = np.empty((len(indices), *test.split.content_shape), np.uint8)
    start = 0
    for images, _ in test.evaluation().as_numpy_iterator():
        here = (indices >= start) & (indices < start + len(images))
        found[here] = images[indices[here] - start]
        start += len(images)
    return found


def as_tiles(images: np.ndarray) -> np.ndarray:
    """The images, scaled down where they are large: uint8 (images, height, width, channels)."""
    height, width = images.shape[1:3]
    scale = min(1.0, MAX_TILE_SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    if scale == 1.0 or not len(images):
        return images[:, : size[0], : size[1]]
    return tf.cast(tf.round(tf.image.resize(images, size, method="area")), tf.uint8).numpy()


def as_sheet(tiles: np.ndarray) -> np.ndarray:
    """One image of all tiles, row by row, the rest of the last row black."""
    count, height, width, channels = tiles.shape
    rows = -(-count // TILES_PER_ROW)
    whole = np.zeros((rows * TILES_PER_ROW, height, width, channels), np.uint8)
    whole[:count] = tiles
    grid = whole.reshape(rows, TILES_PER_ROW, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, TILES_PER_ROW * width, channels)
