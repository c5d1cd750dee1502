"""Pixels: the operations on images, each for a whole batch at once (the augmentation's aid).

Flips, crops and translations only say from which row and column each pixel comes. They are put together first, and the
batch is gathered once for all of them; what looks at pixels follows. Images are uint8 before and after; shapes stay.
"""

import math
from dataclasses import dataclass, replace

import tensorflow as tf

from pipeline.augmentation.draws import Draws

# What a pixel becomes that comes from outside the image: mid-grey, which the networks' first layer makes zero.
GREY = 128
# Proportions of random_resized_crop, width to height, as in Szegedy et al. 2015.
_RATIOS = (3 / 4, 4 / 3)
# Of red, green and blue to the brightness of a pixel (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Window:
    """From where the pixels of a batch come: ``rows`` int32 (batch, height), ``columns`` int32 (batch, width).

    ``outside``: some may be -1, which come from outside the image and are grey.
    """

    rows: tf.Tensor
    columns: tf.Tensor
    outside: bool = False

    @classmethod
    def whole(cls, images: tf.Tensor) -> "Window":
        """Every pixel from where it is."""
        batch, (height, width) = tf.shape(images)[0], images.shape[1:3]
        return cls(*(tf.tile(tf.range(side)[None, :], [batch, 1]) for side in (height, width)))

    def of(self, images: tf.Tensor) -> tf.Tensor:
        """The images through the window, uint8 (batch, height, width, channels)."""
        height, width, channels = images.shape[1:]
        first = tf.range(tf.shape(images)[0])[:, None] * height
        rows, columns = tf.maximum(self.rows, 0), tf.maximum(self.columns, 0)
        places = ((first + rows) * width)[:, :, None] + columns[:, None, :]
        found = tf.gather(tf.reshape(images, [-1, channels]), places)
        if self.outside:
            found = _kept(found, self.rows >= 0, self.columns >= 0, elsewhere=False)
        return tf.ensure_shape(found, [None, height, width, channels])


def flip(window: Window, draws: Draws, _: None) -> Window:
    """Every second image is mirrored, left to right."""
    mirrored = (draws.uniform(0) < 0.5)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def alternating_flip(window: Window, draws: Draws, _: None) -> Window:
    """Half of the images are mirrored, and in the next epoch the other half.

    Of two epochs each image is seen in one as it is and in one mirrored, which a coin leaves out for half of them
    (Jordan 2024). Which half begins is drawn once.
    """
    mirrored = tf.math.logical_xor(draws.of_epoch(0).uniform(0) < 0.5, draws.epoch % 2 == 1)[:, None]
    return replace(window, columns=tf.where(mirrored, window.columns[:, ::-1], window.columns))


def crop(window: Window, draws: Draws, pixels: int) -> Window:
    """The image, reflected at its edges by so many pixels, cut back to its size somewhere in it."""
    return replace(
        window,
        rows=_reflected(window.rows, draws.integer(0, -pixels, pixels)),
        columns=_reflected(window.columns, draws.integer(1, -pixels, pixels)),
    )


def translate(window: Window, draws: Draws, share: float) -> Window:
    """The image moved by up to this share of its sides; what it leaves is grey."""
    rows, columns = (max(1, round(share * side.shape[1])) for side in (window.rows, window.columns))
    return Window(
        _moved(window.rows, draws.integer(0, -rows, rows)),
        _moved(window.columns, draws.integer(1, -columns, columns)),
        outside=True,
    )


def random_resized_crop(images: tf.Tensor, draws: Draws, least: float) -> tf.Tensor:
    """A part of the image, from ``least`` to all of its area, in other proportions, brought back to its size.

    Of the pixels the records hold: a part is enlarged from them, not decoded anew from the original, so where the
    records are much smaller than that it shows less than torchvision's operation of the same name.
    """
    height, width = images.shape[1:3]
    area = draws.uniform(0, least, 1.0)
    ratio = tf.exp(draws.uniform(1, *map(math.log, _RATIOS)))
    # As shares of the sides; where the proportions do not fit the image, what fits of it.
    tall, wide = (tf.minimum(tf.sqrt(part), 1.0) for part in (area / ratio, area * ratio))
    top, left = draws.uniform(2) * (1 - tall), draws.uniform(3) * (1 - wide)
    (first_row, last_row), (first_column, last_column) = _ends(top, tall, height), _ends(left, wide, width)
    boxes = tf.stack([first_row, first_column, last_row, last_column], axis=1)
    batch = tf.range(tf.shape(images)[0])
    found = tf.image.crop_and_resize(images, boxes, batch, [height, width])
    return tf.ensure_shape(tf.cast(tf.round(found), tf.uint8), images.shape)


def color(images: tf.Tensor, draws: Draws, strength: float) -> tf.Tensor:
    """Brightness, contrast and saturation, each times a factor from 1 - ``strength`` to 1 + ``strength``, in turn.

    Images of one channel have no saturation; of four, the last is opacity and stays.
    """
    channels = images.shape[3]
    bright, contrast, saturation = (
        draws.uniform(number, 1 - strength, 1 + strength)[:, None, None, None] for number in range(3)
    )
    colours = tf.cast(images[..., :3], tf.float32)
    luma = tf.tensordot(colours, tf.constant(_LUMA), 1)[..., None] if channels >= 3 else colours
    mean = tf.reduce_mean(luma, axis=[1, 2, 3], keepdims=True)
    # The three are linear: together a multiple of the colour, one of its brightness and a constant of the image.
    found = bright * (contrast * (saturation * colours + (1 - saturation) * luma) + (1 - contrast) * mean)
    found = tf.cast(tf.clip_by_value(tf.round(found), 0, 255), tf.uint8)
    return tf.concat([found, images[..., 3:]], axis=3) if channels > 3 else found


def cutout(images: tf.Tensor, draws: Draws, side: int) -> tf.Tensor:
    """A grey square of this side, its centre anywhere in the image (DeVries and Taylor 2017)."""
    inside = []
    for number, length in enumerate(images.shape[1:3]):
        first = draws.integer(number, 0, length - 1)[:, None] - side // 2
        places = tf.range(length)[None, :]
        inside.append((places >= first) & (places < first + side))
    return _kept(images, inside[0], ~inside[1], elsewhere=True)


def _kept(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *, elsewhere: bool) -> tf.Tensor:
    """The pixels that are kept as they are, the others grey.

    Kept are those of the ``columns``, bool (batch, width), in the ``rows``, bool (batch, height), and ``elsewhere`` all
    or none. Bit by bit, with a mask that is put together from whole rows: several times as fast as tf.where.
    """
    height, width, channels = images.shape[1:]
    batch = tf.shape(images)[0]
    masks = tf.repeat(tf.where(columns, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8)), channels, axis=1)
    masks = tf.concat([tf.fill([1, width * channels], tf.constant(255 * elsewhere, tf.uint8)), masks], axis=0)
    mask = tf.gather(masks, tf.where(rows, 1 + tf.range(batch)[:, None], 0))
    grey = tf.constant(GREY, tf.uint8)
    # What is combined with grey twice is as it was.
    found = tf.bitwise.bitwise_xor(tf.reshape(images, [-1, height, width * channels]), grey)
    found = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_and(found, mask), grey)
    return tf.ensure_shape(tf.reshape(found, [-1, height, width, channels]), images.shape)


def _ends(first: tf.Tensor, size: tf.Tensor, side: int) -> list[tf.Tensor]:
    """Where the first and the last pixel of a part lie, as crop_and_resize counts: shares of the side less one pixel.

    ``first`` and ``size`` are shares of the side. A pixel lies at its middle; beyond the outermost it is that one.
    """
    centres = first * side + size / 2 - 0.5, (first + size) * side - size / 2 - 0.5
    # Not to the very end: rounding would put the last pixel outside, where crop_and_resize sees black.
    return [tf.clip_by_value(centre / max(1, side - 1), 0.0, 1.0 - 1e-5) for centre in centres]


def _reflected(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    last = sources.shape[1] - 1
    places = tf.abs(tf.range(last + 1)[None, :] + by[:, None])
    return tf.gather(sources, last - tf.abs(last - places), batch_dims=1)


def _moved(sources: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    side = sources.shape[1]
    places = tf.range(side)[None, :] + by[:, None]
    found = tf.gather(sources, tf.clip_by_value(places, 0, side - 1), batch_dims=1)
    return tf.where((places >= 0) & (places < side), found, -1)
