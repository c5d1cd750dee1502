"""Placeholder images of ten shapes with random positions, sizes, colors and noise.

An example depends only on its split and index. Every step is integer arithmetic on bytes of BLAKE2b, so all machines
draw the same bytes. Only the shape depends on the label. Brightness and color do not.
"""

import hashlib
import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from pipeline.records.features import IMAGE, LABEL, ImageForm
from pipeline.sources.source import Location, SourceInfo

_DRAW_BATCH = 500

NUM_EXAMPLES = {"train": 50_000, "test": 10_000}
IMAGE_SHAPE = (32, 32, 3)
# Bitmaps of 8 by 8 pixels, a byte per row. Each sets 28 pixels, so that no shape makes an image brighter.
_SHAPES = {
    "disk": "003c7e7e7e3c1800",
    "ring": "3c66c38181c3663c",
    "square": "007c7c7c7c7c7000",
    "frame": "ff818181818181ff",
    "triangle": "1018383c7c7efe00",
    "cross": "181818ffff181818",
    "crescent": "1e3c707070703c1e",
    "hourglass": "7e3c181818183c7e",
    "stripes": "ff0000ff0000ff0f",
    "checks": "cccc3333cccc3030",
}
LABEL_NAMES = tuple(_SHAPES)
# A border of zeros, for the pixels outside a shape.
_BITS = np.unpackbits(np.frombuffer(bytes.fromhex("".join(_SHAPES.values())), np.uint8)).reshape(-1, 8, 8)
_MASKS = np.pad(_BITS, ((0, 0), (1, 1), (1, 1)))
_SIDE, _NUM_VALUES = IMAGE_SHAPE[0], math.prod(IMAGE_SHAPE)
_PIXELS = np.arange(_SIDE)
# Steps that reach all ten labels.
_STEPS = (1, 3, 7, 9)


def draw_block(split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the examples ``start`` to ``stop - 1`` of a split. Indices may exceed ``NUM_EXAMPLES``.

    Returns images, uint8 (stop - start, 32, 32, 3) in RGB, and indices into ``LABEL_NAMES``, int64 (stop - start,).
    """
    drawn = b"".join(_hash(f"{split} {index}") for index in range(start, stop))
    # int32 (64, examples, 1, 1)
    draws = np.frombuffer(drawn, np.uint8).reshape(-1, 64).T[:, :, None, None].astype(np.int32)
    labels = labels_of(split, start, stop)
    scale = 2 + (draws[0] > 160)
    rows, columns = (
        np.clip((_PIXELS - at * (_SIDE - 8 * scale) // 255) // scale + 1, 0, 9).squeeze(1) for at in draws[1:3]
    )
    shapes = _MASKS[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
    contrast = 60 + draws[3] // 3
    back = draws[4] * (255 - contrast) // 255
    # The square of a draw makes most images mild and a few hard.
    starts = np.frombuffer(drawn, "<u4").reshape(-1, 16)[:, -1] % (len(_long_noise()) - _NUM_VALUES)
    windows = np.lib.stride_tricks.sliding_window_view(_long_noise(), _NUM_VALUES)[starts].reshape(-1, *IMAGE_SHAPE)
    noise = windows.astype(np.int32) * (8 + draws[5] * draws[5] // 400)[..., None] // 128
    images = np.empty((len(labels), *IMAGE_SHAPE), np.uint8)
    for channel in range(3):
        tints = (draws[6 + channel : 12 : 3] - 128) // 3
        plane = back + tints[0] + shapes * (contrast + tints[1]) + noise[..., channel]
        images[..., channel] = plane.clip(0, 255)
    return images, labels


def read_drawn(
    info: SourceInfo, location: Location, form: ImageForm, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Draw a range of a split. See ``source.read_batches``."""
    from pipeline.records.images import fit_batch

    for first in range(start, stop, _DRAW_BATCH):
        images, labels = draw_block(split, first, min(first + _DRAW_BATCH, stop))
        yield {IMAGE: fit_batch(images, form), LABEL: labels}


def labels_of(split: str, start: int, stop: int) -> np.ndarray:
    """Labels, int64 (stop - start,). Each group of ten examples has every label once, in a hashed order."""
    labels = []
    for block in range(start // 10, -(-stop // 10)):
        step, first = _hash(f"{split}/{block}")[:2]
        labels += [(first + position * _STEPS[step % 4]) % 10 for position in range(10)]
    return np.array(labels, np.int64)[start % 10 :][: stop - start]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode()).digest()


@cache
def _long_noise() -> np.ndarray:
    """Noise from -128 to 127, int8. The last draws of an example select its window."""
    drawn = b"".join(_hash(f"noise {number}") for number in range(16_384))
    return np.frombuffer(drawn, np.uint8).view(np.int8)
