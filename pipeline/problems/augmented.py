"""Augmented: a picture of what augmentation makes of a few examples of train (image_classification's aid).

A row for each: as it is stored, then as it is in the first epochs. Mixup mixes an example with the one before it in the
epoch's order, which differs each time; the picture mixes each with the one above it, by the share that the epoch has.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline.problems.image_evaluation import TILES_PER_ROW, as_sheet, as_tiles
from pipeline.problems.problem import Stream
from pipeline.runs.metrics import AUGMENTED_NAME

MAX_EXAMPLES = 4


def picture_augmented(train: Stream, folder: Path) -> list[dict[str, int]]:
    """Leave augmented.png in ``folder``, tiles as image_evaluation.py's.

    Returns:
        For each tile its ``index`` in the stored order of train, its ``label``, and its ``epoch``, from 1, or 0 for the
        example as it is stored; nothing where there is no augmentation.
    """
    if not train.augmentation:
        return []
    images, labels = next(train.evaluation().take(1).as_numpy_iterator())
    # The first of each label: alike images would show less.
    places = np.sort(np.unique(labels, return_index=True)[1])[:MAX_EXAMPLES]
    epochs = range(1, TILES_PER_ROW)
    # Where there is a GPU it has no kernels for some of it.
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
