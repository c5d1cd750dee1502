"""Operations on a batch of uint8 images. Shapes and dtype stay the same.

Flips, crops and translations only choose the row and column of each pixel. They are combined, and one gather applies
them. The other operations follow in order.
"""

import math
from dataclasses import dataclass, replace

import tensorflow as tf

from pipeline.augmentation.seeded_random import Draws

# The value outside an image. The models' first layer maps it to zero.
GRAY = 128
# Proportions of random_resized_crop, width to height, as in Szegedy et al. 2015.
_RATIOS = (3 / 4, 4 / 3)
# Of red, green and blue to the brightness of a pixel (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Window:
    """The source of each pixel: ``rows`` int32 (batch, height), ``columns`` int32 (batch, width).

    ``outside``: some may be -1, outside the image. These pixels become gray.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    outside: bool = False

    @classmethod
    def whole(cls, images: tf.Tensor) -> "Window":
        """The window that changes nothing."""
        batch, (height, width) = tf.shape(images)[0], images.shape[1:3]
        return cls(*(tf.tile(tf.range(side)[None, :], [batch, 1]) for side in (height, width)))

    def of(self, images: tf.Tensor) -> tf.Tensor:
        """Apply the window to images, uint8 (batch, height, width, channels)."""
        height, width, channels = images.shape[1:]
        first = tf.range(tf.shape(images)[0])[:, None] * height
        rows, columns = tf.maximum(self.rows, 0), tf.maximum(self.columns, 0)
        places = ((first + rows) * width)[:, :, None] + columns[:, None, :]
        found = tf.gather(tf.reshape(images, [-1, channels]), places)
        if self.outside:
            found = _kept(found, self.rows >= 0, self.columns >= 0, elsewhere=False)
        return tf.ensure_shape(found, [None, height, width, channels])


def flip(window: Window, draws: Draws, _: None) -> Window:
    """Mirror each image with probability 0.5."""
    mirrored = (draws.uniform(0) < 0.5)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def alternating_flip(window: Window, draws: Draws, _: None) -> Window:
    """Mirror half of the images in even epochs and the other half in odd epochs (Jordan 2024)."""
    mirrored = tf.math.logical_xor(draws.of_epoch(0).uniform(0) < 0.5, draws.epoch % 2 == 1)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def crop(window: Window, draws: Draws, pixels: int) -> Window:
    """Pad each image by reflected pixels and crop it to its size at a random position."""
    return replace(
        window,
        rows=_reflected(window.rows, draws.integer(0, -pixels, pixels)),
        columns=_reflected(window.columns, draws.integer(1, -pixels, pixels)),
    )


def translate(window: Window, draws: Draws, share: float) -> Window:
    """Move each image by up to this share of its sides. The rest becomes gray."""
    rows, columns = (max(1, round(share * side.shape[1])) for side in (window.rows, window.columns))
    return Window(
        _moved(window.rows, draws.integer(0, -rows, rows)),
        _moved(window.columns, draws.integer(1, -columns, columns)),
        outside=True,
    )


def random_resized_crop(images: tf.Tensor, draws: Draws, least: float) -> tf.Tensor:
    """Crop a part of random proportions, from ``least`` to all of the area, and resize it to the image's size.

    The part comes from the records' pixels. torchvision's operation crops the original image, which has more detail.
    """
    height, width = images.shape[1:3]
    area = draws.uniform(0, least, 1.0)
    ratio = tf.exp(draws.uniform(1, *map(math.log, _RATIOS)))
    # As shares of the sides, at most 1.
    tall, wide = (tf.minimum(tf.sqrt(part), 1.0) for part in (area / ratio, area * ratio))
    top, left = draws.uniform(2) * (1 - tall), draws.uniform(3) * (1 - wide)
    (first_row, last_row), (first_column, last_column) = _ends(top, tall, height), _ends(left, wide, width)
    boxes = tf.stack([first_row, first_column, last_row, last_column], axis=1)
    batch = tf.range(tf.shape(images)[0])
    found = tf.image.crop_and_resize(images, boxes, batch, [height, width])
    return tf.ensure_shape(tf.cast(tf.round(found), tf.uint8), images.shape)


def color(images: tf.Tensor, draws: Draws, strength: float) -> tf.Tensor:
    """Multiply brightness, contrast and saturation by factors from 1 - ``strength`` to 1 + ``strength``.

    Images of one channel have no saturation. The fourth channel, opacity, stays.
    """
    channels = images.shape[3]
    bright, contrast, saturation = (
        draws.uniform(number, 1 - strength, 1 + strength)[:, None, None, None] for number in range(3)
    )
    colors = tf.cast(images[..., :3], tf.float32)
    luma = tf.tensordot(colors, tf.constant(_LUMA), 1)[..., None] if channels >= 3 else colors
    mean = tf.reduce_mean(luma, axis=[1, 2, 3], keepdims=True)
    # All three are linear, so one expression combines them.
    found = bright * (contrast * (saturation * colors + (1 - saturation) * luma) + (1 - contrast) * mean)
    found = tf.cast(tf.clip_by_value(tf.round(found), 0, 255), tf.uint8)
    return tf.concat([found, images[..., 3:]], axis=3) if channels > 3 else found


def cutout(images: tf.Tensor, draws: Draws, side: int) -> tf.Tensor:
    """Set a square of this side, its center anywhere in the image, to gray (DeVries and Taylor 2017)."""
    inside = []
    for number, length in enumerate(images.shape[1:3]):
        first = draws.integer(number, 0, length - 1)[:, None] - side // 2
        places = tf.range(length)[None, :]
        inside.append((places >= first) & (places < first + side))
    return _kept(images, inside[0], ~inside[1], elsewhere=True)


def _kept(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *, elsewhere: bool) -> tf.Tensor:
    """Keep pixels in ``columns``, bool (batch, width), of ``rows``, bool (batch, height); the others become gray."""
    # In other rows all (``elsewhere``) or none are kept. Bit masks are several times as fast as tf.where.
    height, width, channels = images.shape[1:]
    batch = tf.shape(images)[0]
    masks = tf.repeat(tf.where(columns, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8)), channels, axis=1)
    masks = tf.concat([tf.fill([1, width * channels], tf.constant(255 * elsewhere, tf.uint8)), masks], axis=0)
    mask = tf.gather(masks, tf.where(rows, 1 + tf.range(batch)[:, None], 0))
    gray = tf.constant(GRAY, tf.uint8)
    # Combining with gray twice changes nothing.
    found = tf.bitwise.bitwise_xor(tf.reshape(images, [-1, height, width * channels]), gray)
    found = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_and(found, mask), gray)
    return tf.ensure_shape(tf.reshape(found, [-1, height, width, channels]), images.shape)


def _ends(first: tf.Tensor, size: tf.Tensor, side: int) -> list[tf.Tensor]:
    """The first and last pixel of a part in the coordinates of crop_and_resize."""
    centers = first * side + size / 2 - 0.5, (first + size) * side - size / 2 - 0.5
    # Slightly less than 1: rounding would put the last pixel outside, which crop_and_resize makes black.
    return [tf.clip_by_value(center / max(1, side - 1), 0.0, 1.0 - 1e-5) for center in centers]


def _reflected(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    last = sources.shape[1] - 1
    places = tf.abs(tf.range(last + 1)[None, :] + by[:, None])
    return tf.gather(sources, last - tf.abs(last - places), batch_dims=1)


def _moved(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    side = sources.shape[1]
    places = tf.range(side)[None, :] + by[:, None]
    found = tf.gather(sources, tf.clip_by_value(places, 0, side - 1), batch_dims=1)
    return tf.where((places >= 0) & (places < side), found, -1)
