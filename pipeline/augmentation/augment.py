"""Operations of [Train] augment on the uint8 images of the train split.

The result for an image depends only on the seed, the epoch and its index in the split, so a resumed run repeats it.
Mixup combines a share w of an example with 1 - w of the previous example, for w from Beta(alpha, alpha) (Zhang et al.
2018). The loss is linear in the label, so the labels of a mixed batch are (label, previous label, w).
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
_WINDOWS = {op.__name__: op for op in (image_ops.flip, image_ops.alternating_flip, image_ops.crop, image_ops.translate)}
_PIXELS = {op.__name__: op for op in (image_ops.random_resized_crop, image_ops.color, image_ops.cutout)}
# Shares of an image are multiples of 1 / 256.
_STEPS = 256
_TABLE_SIZE = 4_097
_NO_LABEL = -1


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
                window = _WINDOWS[name](window or image_ops.Window.identity(images), draws, number)
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
        return _with_previous(weighed).map(_mixed, num_parallel_calls=workers)

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


def _with_previous(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Append image and label of the previous example. Example 0 gets a black image and the label -1."""
    shape = batches.element_spec[0].shape[1:]
    start = (tf.zeros([1, *shape], tf.uint8), tf.constant([_NO_LABEL], tf.int32))

    def append(state: tuple[tf.Tensor, ...], batch: tuple[tf.Tensor, ...]) -> tuple:
        previous = tuple(tf.concat([tail, values[:-1]], axis=0) for tail, values in zip(state, batch[:2], strict=True))
        return tuple(values[-1:] for values in batch[:2]), (*batch, *previous)

    return batches.scan(start, append)


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
