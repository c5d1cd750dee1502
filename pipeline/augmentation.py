"""Operations of [Train] augment on the uint8 images of the train split.

The result for an image depends only on the seed, the epoch and its index in the split, so a resumed run repeats it.
TensorFlow's stateless generators use a seed per tensor, so their numbers would depend on the position in the batch.
Here each number is a hash, the finalizer of SplitMix64 (Steele, Lea and Flood 2014).

Mixup combines a share w of an example with 1 - w of the previous example, for w from Beta(alpha, alpha) (Zhang et al.
2018). The loss is linear in the label, so the labels of a mixed batch are (label, previous label, w).
"""

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from pipeline.errors import refuse
from pipeline.settings.training import parse_augment

#: Columns of the labels of a mixed batch.
MIXED_WIDTH = 3

_MIXUP = "mixup"
# Shares of an image are multiples of 1 / 256.
_STEPS = 256
_TABLE_SIZE = 4_097
_NO_LABEL = -1
# Pixel value outside an image. The rescaling of most models maps it to zero.
GRAY = 128
# Aspect ratios of random_resized_crop, width to height (Szegedy et al. 2015).
_RATIOS = (3 / 4, 4 / 3)
# Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIER_1, _MULTIPLIER_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Random bits of a float32 between 0 and 1.
_DIGITS = 24


class Draws:
    """Random numbers of an operation on a batch of examples in an epoch."""

    def __init__(self, indices: tf.Tensor, *, seed: int, epoch: tf.Tensor | int, operation: str) -> None:
        """Seed the numbers. ``indices``, int (batch,), are positions in the stored order, and ``epoch`` is int ()."""
        self.epoch = tf.cast(epoch, tf.int64)
        self._of = {"indices": indices, "seed": seed, "operation": operation}
        name = f"{seed} {operation}".encode()
        key = _constant(int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little"))
        key = _hashed(tf.bitwise.bitwise_xor(_hashed(tf.cast(epoch, tf.uint64)), key))
        self._keys = _hashed(tf.bitwise.bitwise_xor(_hashed(tf.cast(indices, tf.uint64)), key))

    def of_epoch(self, epoch: int) -> "Draws":
        """Numbers of the same operation and examples in another epoch."""
        return Draws(epoch=epoch, **self._of)

    def uniform(self, number: int, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
        """Draw float32 (batch,) in [``low``, ``high``). ``number`` distinguishes the draws of an operation."""
        bits = _hashed(self._keys + _constant((number + 1) * _GOLDEN % 2**64))
        share = tf.cast(tf.bitwise.right_shift(bits, _constant(64 - _DIGITS)), tf.float32) * 2.0**-_DIGITS
        return low + share * (high - low)

    def integer(self, number: int, low: int, high: int) -> tf.Tensor:
        """Draw int32 (batch,) in [``low``, ``high``]."""
        count = high - low + 1
        return low + tf.minimum(tf.cast(self.uniform(number) * count, tf.int32), count - 1)


def _hashed(bits: tf.Tensor) -> tf.Tensor:
    bits = bits + _constant(_GOLDEN)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(30))) * _constant(_MULTIPLIER_1)
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(27))) * _constant(_MULTIPLIER_2)
    return tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, _constant(31)))


def _constant(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


@dataclass(frozen=True)
class Window:
    """Source of each pixel, as ``rows`` int32 (batch, height) and ``columns`` int32 (batch, width).

    Operations that only move pixels are combined, and one gather applies them. If ``outside`` is true, a source may be
    -1, outside the image. These pixels become gray.
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


_WINDOWS = {op.__name__: op for op in (flip, alternating_flip, crop, translate)}
_PIXELS = {op.__name__: op for op in (random_resized_crop, color, cutout)}


class Augmentation:
    """Operations of the setting in its order, and mixup at the end."""

    def __init__(self, setting: str, *, seed: int, image_shape: tuple[int, int, int]) -> None:
        """Parse a setting for images (height, width, channels). SettingsError: the images are too small."""
        numbers = dict(parse_augment(setting))
        side = min(image_shape[:2])
        for name, number in numbers.items():
            if name in ("crop", "cutout") and number >= side:
                refuse("Train", "augment", f"less than the images' {side} pixels after {name}:", setting)
        self._seed = seed
        self._quantiles = beta_quantiles(numbers.pop(_MIXUP)) if _MIXUP in numbers else None
        self._operations = tuple(numbers.items())
        # The epoch is an argument, because tracing per epoch would take up to a second.
        self._traced = tf.function(self._changed, autograph=False)
        self._traced_weights = tf.function(self._weights, autograph=False)

    @property
    def mixes(self) -> bool:
        """Whether the batches of an epoch are mixed."""
        return self._quantiles is not None

    def images(self, images: tf.Tensor, indices: tf.Tensor, epoch: int) -> tf.Tensor:
        """Apply all operations except mixup to uint8 images (batch, height, width, channels).

        ``indices`` are positions in the stored order of the split, int (batch,). ``epoch`` counts from 0.
        """
        return tf.ensure_shape(self._traced(images, indices, tf.constant(epoch, tf.int64)), images.shape)

    def change(self, epoch: int, images: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Apply ``images`` to a batch. The result includes the indices if ``mixing`` follows."""
        images = self.images(images, indices, epoch)
        return (images, labels, indices) if self.mixes else (images, labels)

    def _changed(self, images: tf.Tensor, indices: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        window = None
        for name, number in self._operations:
            draws = Draws(indices, seed=self._seed, epoch=epoch, operation=name)
            if name in _WINDOWS:
                window = _WINDOWS[name](window or Window.identity(images), draws, number)
            else:
                images, window = (window.of(images) if window else images), None
                images = _PIXELS[name](images, draws, number)
        return window.of(images) if window else images

    def mixing(self, batches: tf.data.Dataset, epoch: int, workers: int) -> tf.data.Dataset:
        """Mix the batches (images, labels, indices) of an epoch. Return images and float32 labels (batch, 3)."""
        number = tf.constant(epoch, tf.int64)
        weighed = batches.map(
            lambda images, labels, indices: (images, labels, self._traced_weights(indices, number)),
            num_parallel_calls=workers,
        )
        # Example 0 gets a black image and the label -1.
        start = (tf.zeros([1, *weighed.element_spec[0].shape[1:]], tf.uint8), tf.constant([_NO_LABEL], tf.int32))

        def with_previous(last: tuple[tf.Tensor, ...], batch: tuple[tf.Tensor, ...]) -> tuple:
            pairs = zip(last, batch[:2], strict=True)
            previous = (tf.concat([tail, values[:-1]], axis=0) for tail, values in pairs)
            return tuple(values[-1:] for values in batch[:2]), (*batch, *previous)

        return weighed.scan(start, with_previous).map(_mixed, num_parallel_calls=workers)

    def mixed_preview(self, images: tf.Tensor, indices: tf.Tensor, epoch: int) -> tf.Tensor:
        """Mix each image of a batch with the previous image, for a preview. Image 0 is mixed with the last."""
        labels = tf.zeros_like(indices, tf.int32)
        return _mixed(images, labels, self._weights(indices, epoch), tf.roll(images, 1, 0), labels)[0]

    def _weights(self, indices: tf.Tensor, epoch: tf.Tensor | int) -> tf.Tensor:
        """Share of each example in its mixture in units of 1 / 256, int32 (batch,)."""
        draws = Draws(indices, seed=self._seed, epoch=epoch, operation=_MIXUP)
        quantile = draws.integer(0, 0, len(self._quantiles) - 1)
        return tf.cast(tf.round(tf.gather(tf.constant(self._quantiles), quantile) * _STEPS), tf.int32)


def beta_quantiles(alpha: float) -> np.ndarray:
    """Quantiles of Beta(alpha, alpha) at equal distances from 0 to 1, float32 (4097,)."""
    # Only mixup needs this import.
    import scipy.special

    return scipy.special.betaincinv(alpha, alpha, np.linspace(0, 1, _TABLE_SIZE)).astype(np.float32)


@tf.function(autograph=False, reduce_retracing=True)
def _mixed(
    images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, previous_images: tf.Tensor, previous_labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mix images and return them with their labels, float32 (batch, 3)."""
    is_unpaired = previous_labels == _NO_LABEL
    weights = tf.where(is_unpaired, _STEPS, weights)
    share = tf.cast(weights, tf.float32)[:, None, None, None] / _STEPS
    current, previous = tf.cast(images, tf.float32), tf.cast(previous_images, tf.float32)
    mixture = tf.cast(tf.round(previous + share * (current - previous)), tf.uint8)
    previous_labels = tf.where(is_unpaired, labels, previous_labels)
    columns = [tf.cast(labels, tf.float32), tf.cast(previous_labels, tf.float32), share[:, 0, 0, 0]]
    return mixture, tf.stack(columns, axis=1)
