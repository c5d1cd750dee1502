"""Augmentation operations on a batch of uint8 images. Shapes and dtype stay the same.

Flips, crops and translations only select the row and column of each pixel. They are combined, and one gather applies
them. All other operations change pixels.
"""

import math
from dataclasses import dataclass, replace

import tensorflow as tf

from pipeline.augmentation.seeded_random import Draws

# Pixel value outside an image. The rescaling of most models maps it to zero.
GRAY = 128
# Aspect ratios of random_resized_crop, width to height (Szegedy et al. 2015).
_RATIOS = (3 / 4, 4 / 3)
# Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Window:
    """Source of each pixel, as ``rows`` int32 (batch, height) and ``columns`` int32 (batch, width).

    If ``outside`` is true, a source may be -1, outside the image. These pixels become gray.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    outside: bool = False

    @classmethod
    def identity(cls, images: tf.Tensor) -> "Window":
        """Window that changes nothing."""
        batch, (height, width) = tf.shape(images)[0], images.shape[1:3]
        return cls(*(tf.tile(tf.range(side)[None, :], [batch, 1]) for side in (height, width)))

    def of(self, images: tf.Tensor) -> tf.Tensor:
        """Apply the window to images, uint8 (batch, height, width, channels)."""
        height, width, channels = images.shape[1:]
        start = tf.range(tf.shape(images)[0])[:, None] * height
        rows, columns = tf.maximum(self.rows, 0), tf.maximum(self.columns, 0)
        indices = ((start + rows) * width)[:, :, None] + columns[:, None, :]
        pixels = tf.gather(tf.reshape(images, [-1, channels]), indices)
        if self.outside:
            pixels = _grayed(pixels, self.rows >= 0, self.columns >= 0, keep_other_rows=False)
        return tf.ensure_shape(pixels, [None, height, width, channels])


def flip(window: Window, draws: Draws, _: None) -> Window:
    """Mirror each image with probability 0.5."""
    mirrored = (draws.uniform(0) < 0.5)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def alternating_flip(window: Window, draws: Draws, _: None) -> Window:
    """Mirror half of the images in even epochs and the other half in odd epochs (Jordan 2024)."""
    mirrored = tf.math.logical_xor(draws.of_epoch(0).uniform(0) < 0.5, draws.epoch % 2 == 1)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def crop(window: Window, draws: Draws, pixels: int) -> Window:
    """Pad each image with reflected pixels and crop it to its size at a random position."""
    rows, columns = (draws.integer(number, -pixels, pixels) for number in range(2))
    return replace(window, rows=_reflected(window.rows, rows), columns=_reflected(window.columns, columns))


def translate(window: Window, draws: Draws, share: float) -> Window:
    """Shift each image by at most ``share`` of its sides. Uncovered pixels become gray."""
    rows, columns = (max(1, round(share * side.shape[1])) for side in (window.rows, window.columns))
    down, right = draws.integer(0, -rows, rows), draws.integer(1, -columns, columns)
    return Window(_moved(window.rows, down), _moved(window.columns, right), outside=True)


def random_resized_crop(images: tf.Tensor, draws: Draws, min_area: float) -> tf.Tensor:
    """Crop a region of random aspect ratio, with a share of the area from ``min_area`` to 1, and resize it.

    The region comes from the records' pixels. torchvision crops the original image, which has more detail.
    """
    height, width = images.shape[1:3]
    area = draws.uniform(0, min_area, 1.0)
    ratio = tf.exp(draws.uniform(1, *map(math.log, _RATIOS)))
    # Sides of the region as shares of the image's sides.
    tall, wide = (tf.minimum(tf.sqrt(square), 1.0) for square in (area / ratio, area * ratio))
    top, left = draws.uniform(2) * (1 - tall), draws.uniform(3) * (1 - wide)
    (first_row, last_row), (first_column, last_column) = _ends(top, tall, height), _ends(left, wide, width)
    boxes = tf.stack([first_row, first_column, last_row, last_column], axis=1)
    batch = tf.range(tf.shape(images)[0])
    resized = tf.image.crop_and_resize(images, boxes, batch, [height, width])
    return tf.ensure_shape(tf.cast(tf.round(resized), tf.uint8), images.shape)


def color(images: tf.Tensor, draws: Draws, strength: float) -> tf.Tensor:
    """Multiply brightness, contrast and saturation by factors from 1 - ``strength`` to 1 + ``strength``.

    Images of one channel have no saturation. The fourth channel, opacity, stays the same.
    """
    channels = images.shape[3]
    bright, contrast, saturation = (
        draws.uniform(number, 1 - strength, 1 + strength)[:, None, None, None] for number in range(3)
    )
    colors = tf.cast(images[..., :3], tf.float32)
    luma = tf.tensordot(colors, tf.constant(_LUMA), 1)[..., None] if channels >= 3 else colors
    mean = tf.reduce_mean(luma, axis=[1, 2, 3], keepdims=True)
    # The three operations are linear, so one expression combines them.
    jittered = bright * (contrast * (saturation * colors + (1 - saturation) * luma) + (1 - contrast) * mean)
    jittered = tf.cast(tf.clip_by_value(tf.round(jittered), 0, 255), tf.uint8)
    return tf.concat([jittered, images[..., 3:]], axis=3) if channels > 3 else jittered


def cutout(images: tf.Tensor, draws: Draws, side: int) -> tf.Tensor:
    """Set a square of ``side`` pixels, with its center anywhere in the image, to gray (DeVries and Taylor 2017)."""
    inside = []
    for number, length in enumerate(images.shape[1:3]):
        start = draws.integer(number, 0, length - 1)[:, None] - side // 2
        positions = tf.range(length)[None, :]
        inside.append((positions >= start) & (positions < start + side))
    return _grayed(images, inside[0], ~inside[1], keep_other_rows=True)


def _grayed(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *, keep_other_rows: bool) -> tf.Tensor:
    """Gray all pixels outside ``columns``, bool (batch, width), in the selected ``rows``, bool (batch, height)."""
    # Rows that are not selected stay or become gray. Bit masks are several times as fast as tf.where.
    height, width, channels = images.shape[1:]
    batch = tf.shape(images)[0]
    masks = tf.repeat(tf.where(columns, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8)), channels, axis=1)
    masks = tf.concat([tf.fill([1, width * channels], tf.constant(255 * keep_other_rows, tf.uint8)), masks], axis=0)
    mask = tf.gather(masks, tf.where(rows, 1 + tf.range(batch)[:, None], 0))
    gray = tf.constant(GRAY, tf.uint8)
    # XOR with gray twice changes nothing.
    pixels = tf.bitwise.bitwise_xor(tf.reshape(images, [-1, height, width * channels]), gray)
    pixels = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_and(pixels, mask), gray)
    return tf.ensure_shape(tf.reshape(pixels, [-1, height, width, channels]), images.shape)


def _ends(start: tf.Tensor, size: tf.Tensor, side: int) -> list[tf.Tensor]:
    """Start and end of a region in the coordinates of crop_and_resize."""
    centers = start * side + size / 2 - 0.5, (start + size) * side - size / 2 - 0.5
    # At 1, rounding could put the last pixel outside, and crop_and_resize would make it black.
    return [tf.clip_by_value(center / max(1, side - 1), 0.0, 1.0 - 1e-5) for center in centers]


def _reflected(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    end = sources.shape[1] - 1
    positions = tf.abs(tf.range(end + 1)[None, :] + by[:, None])
    return tf.gather(sources, end - tf.abs(end - positions), batch_dims=1)


def _moved(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    side = sources.shape[1]
    positions = tf.range(side)[None, :] + by[:, None]
    shifted = tf.gather(sources, tf.clip_by_value(positions, 0, side - 1), batch_dims=1)
    return tf.where((positions >= 0) & (positions < side), shifted, -1)
