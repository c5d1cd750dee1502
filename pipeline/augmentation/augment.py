"""The operations of [Train] augment, on the uint8 images of the train split.

An image's result depends only on the seed, the epoch and its place in the split, so a resume repeats it. Mixup follows
Zhang et al. 2018: a share w of one example and 1 - w of the one before it in the epoch, w from Beta(alpha, alpha). The
loss is linear in the label. The labels of a mixed batch are therefore (label, other label, w).
"""

import numpy as np
import tensorflow as tf

from pipeline.augmentation import image_ops
from pipeline.augmentation.seeded_random import Draws
from pipeline.settings.setting_error import refuse
from pipeline.settings.training import parse_augment

#: Columns of the labels of a mixed batch.
MIXED_WIDTH = 3

_MIXUP = "mixup"
_WINDOWS = {
    one.__name__: one for one in (image_ops.flip, image_ops.alternating_flip, image_ops.crop, image_ops.translate)
}
_PIXELS = {one.__name__: one for one in (image_ops.random_resized_crop, image_ops.color, image_ops.cutout)}
# A share of an image is a number of 256ths.
_STEPS = 256
_TABLE_SIZE = 4_097
_NO_LABEL = -1


class Augmentation:
    """The operations of a setting in its order. Mixup is applied last."""

    def __init__(self, setting: str, *, seed: int, image_shape: tuple[int, int, int]) -> None:
        """``image_shape``: (height, width, channels). SettingsError: the images are too small for the setting."""
        numbers = dict(parse_augment(setting))
        side = min(image_shape[:2])
        for name, number in numbers.items():
            if name in ("crop", "cutout") and number >= side:
                refuse("Train", "augment", f"less than the images' {side} pixels after {name}:", setting)
        self._seed = seed
        self._quantiles = beta_quantiles(numbers.pop(_MIXUP)) if _MIXUP in numbers else None
        self._operations = tuple(numbers.items())
        # Traced once, with the epoch as an argument. Tracing again takes up to a second per epoch.
        self._traced = tf.function(self._changed, autograph=False)
        self._traced_weights = tf.function(self._weights, autograph=False)

    @property
    def mixes(self) -> bool:
        """Whether the batches of an epoch are mixed."""
        return self._quantiles is not None

    def images(self, images: tf.Tensor, places: tf.Tensor, epoch: int) -> tf.Tensor:
        """All operations but mixup, on uint8 images (batch, height, width, channels).

        ``places``: int (batch,), positions in the stored order of the split. ``epoch``: from 0.
        """
        return tf.ensure_shape(self._traced(images, places, tf.constant(epoch, tf.int64)), images.shape)

    def change(self, epoch: int, images: tf.Tensor, labels: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """A batch after ``images``, with the places if ``mixing`` follows."""
        images = self.images(images, places, epoch)
        return (images, labels, places) if self.mixes else (images, labels)

    def _changed(self, images: tf.Tensor, places: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        window = None
        for name, number in self._operations:
            draws = self._draws(places, epoch, name)
            if name in _WINDOWS:
                window = _WINDOWS[name](window or image_ops.Window.whole(images), draws, number)
            else:
                images, window = (window.of(images) if window else images), None
                images = _PIXELS[name](images, draws, number)
        return window.of(images) if window else images

    def mixing(self, batches: tf.data.Dataset, epoch: int, workers: int) -> tf.data.Dataset:
        """Mix the batches of an epoch: (images, labels, places) → (images, float32 labels (batch, 3))."""
        number = tf.constant(epoch, tf.int64)
        weighed = batches.map(
            lambda images, labels, places: (images, labels, self._traced_weights(places, number)),
            num_parallel_calls=workers,
        )
        return _with_the_one_before(weighed).map(_mixed, num_parallel_calls=workers)

    def mixed_in_turn(self, images: tf.Tensor, places: tf.Tensor, epoch: int) -> tf.Tensor:
        """Mix each image of one batch with the one before it, the first with the last. For a preview."""
        labels = tf.zeros_like(places, tf.int32)
        return _mixed(images, labels, self._weights(places, epoch), tf.roll(images, 1, 0), labels)[0]

    def _weights(self, places: tf.Tensor, epoch: tf.Tensor | int) -> tf.Tensor:
        """The 256ths of itself that each example keeps: int32 (batch,)."""
        place = self._draws(places, epoch, _MIXUP).integer(0, 0, len(self._quantiles) - 1)
        return tf.cast(tf.round(tf.gather(tf.constant(self._quantiles), place) * _STEPS), tf.int32)

    def _draws(self, places: tf.Tensor, epoch: tf.Tensor | int, name: str) -> Draws:
        return Draws(places, seed=self._seed, epoch=epoch, operation=name)


def beta_quantiles(alpha: float) -> np.ndarray:
    """Quantiles of Beta(alpha, alpha) at equal distances from 0 to 1, float32 (4097,)."""
    # Of all operations mixup alone needs it.
    import scipy.special

    return scipy.special.betaincinv(alpha, alpha, np.linspace(0, 1, _TABLE_SIZE)).astype(np.float32)


def _with_the_one_before(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Append the image and label of the example before; the first of all gets a black image and the label -1."""
    shape = batches.element_spec[0].shape[1:]
    start = (tf.zeros([1, *shape], tf.uint8), tf.constant([_NO_LABEL], tf.int32))

    def follow(last: tuple[tf.Tensor, ...], batch: tuple[tf.Tensor, ...]) -> tuple:
        before = tuple(tf.concat([one, many[:-1]], axis=0) for one, many in zip(last, batch[:2], strict=True))
        return tuple(many[-1:] for many in batch[:2]), (*batch, *before)

    return batches.scan(start, follow)


@tf.function(autograph=False, reduce_retracing=True)
def _mixed(
    images: tf.Tensor, labels: tf.Tensor, kept: tf.Tensor, other_images: tf.Tensor, other_labels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixed images and their labels."""
    alone = other_labels == _NO_LABEL
    kept = tf.where(alone, _STEPS, kept)
    share = tf.cast(kept, tf.float32)[:, None, None, None] / _STEPS
    here, there = tf.cast(images, tf.float32), tf.cast(other_images, tf.float32)
    found = tf.cast(tf.round(there + share * (here - there)), tf.uint8)
    others = tf.where(alone, labels, other_labels)
    columns = [tf.cast(labels, tf.float32), tf.cast(others, tf.float32), share[:, 0, 0, 0]]
    return found, tf.stack(columns, axis=1)
