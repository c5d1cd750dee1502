"""Evaluation of an image classifier on the test split, with test images and augmented examples as sheets of tiles."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline.problems.classification import MAX_MISTAKES, Predictions, evaluate_labels, metrics, predict, quick_metrics
from pipeline.problems.problem import AUGMENTED_NAME, EXAMPLES_NAME, TEST_IMAGES_NAME, EvaluatedRun, Stream, examples_at

__all__ = ["evaluate", "metrics", "predict", "quick_metrics"]

MAX_AUGMENTED = 4
# Larger images are scaled down to this size.
MAX_TILE_SIDE = 64
TILES_PER_ROW = 8


def evaluate(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Write test_predictions.csv and the pictures. See ``Problem.evaluation``."""
    (facts, shown, random), test = evaluate_labels(predictions, run), run.test
    images = [image for image, _ in examples_at(test, [entry["index"] for entry in (*shown, *random)])]
    # The test split may have no example of the first labels.
    tiles = as_tiles(np.array(images, np.uint8).reshape(-1, *test.split.content_shape))
    facts |= {
        "test_images": shown,
        "examples": random,
        "augmented": picture_augmented(run.train, run.folder),
        "tiles": {"per_row": TILES_PER_ROW, "height": tiles.shape[1], "width": tiles.shape[2]},
    }
    write_sheet(run.folder / EXAMPLES_NAME, tiles[len(shown) :])
    write_sheet(run.folder / TEST_IMAGES_NAME, tiles[: len(shown)])
    # The first of them are the most confident mistakes.
    mistakes = tiles[: min(MAX_MISTAKES, sum(entry["label"] != entry["predicted"] for entry in shown))]
    return facts, {"mistakes": mistakes} if len(mistakes) else {}


def picture_augmented(train: Stream, folder: Path) -> list[dict[str, int]]:
    """Write augmented.png, with a row per train example that starts as stored and continues with the first epochs.

    Mixup mixes each image with the image above it. In training it mixes an example with the previous one. Returns the
    ``index`` in the stored order of train, the ``label``, and the ``epoch`` per tile. Epochs start at 1, and 0 marks
    the stored example. Empty without augmentation.
    """
    if not train.augmentation:
        return []
    images, labels = next(train.evaluation().take(1).as_numpy_iterator())
    # Different labels show more than similar images.
    positions = np.sort(np.unique(labels, return_index=True)[1])[:MAX_AUGMENTED]
    columns = [images[positions]]
    for epoch in range(TILES_PER_ROW - 1):
        # Some operations have no GPU kernels.
        with tf.device("/CPU:0"):
            augmented = train.augmentation.images(tf.constant(images[positions]), tf.constant(positions), epoch)
            if train.augmentation.mixes:
                augmented = train.augmentation.mixed_preview(augmented, tf.constant(positions), epoch)
        columns.append(augmented.numpy())
    write_sheet(folder / AUGMENTED_NAME, as_tiles(np.concatenate(np.stack(columns, axis=1))))
    return [
        {"index": position, "label": int(labels[position]), "epoch": epoch}
        for position in positions.tolist()
        for epoch in range(TILES_PER_ROW)
    ]


def as_tiles(images: np.ndarray) -> np.ndarray:
    """Return the images, uint8 (images, height, width, channels), with large ones scaled down."""
    height, width = images.shape[1:3]
    scale = MAX_TILE_SIDE / max(height, width)
    if scale >= 1 or not len(images):
        return images
    size = max(1, round(height * scale)), max(1, round(width * scale))
    return tf.cast(tf.round(tf.image.resize(images, size, method="area")), tf.uint8).numpy()


def write_sheet(path: Path, tiles: np.ndarray) -> None:
    """Write an image of all tiles, row by row, with black tiles at its end. Without tiles there is no file."""
    if not len(tiles):
        return
    _, height, width, channels = tiles.shape
    padded = np.pad(tiles, [(0, -len(tiles) % TILES_PER_ROW), (0, 0), (0, 0), (0, 0)])
    rows = padded.reshape(-1, TILES_PER_ROW, height, width, channels).swapaxes(1, 2)
    sheet = rows.reshape(-1, TILES_PER_ROW * width, channels)
    path.write_bytes(tf.io.encode_png(sheet).numpy())
