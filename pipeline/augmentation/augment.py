"""Augment: the operations of [Train] augment, one after the other (… → shards → **stream** → training → …)."""

from collections.abc import Callable

import tensorflow as tf

from pipeline.augmentation import mixing, pixels
from pipeline.augmentation.draws import Draws
from pipeline.config.augment import parse_augment
from pipeline.config.refusal import refuse

_MIXUP = "mixup"
_WINDOWS: dict[str, Callable] = {
    "flip": pixels.flip,
    "alternating_flip": pixels.alternating_flip,
    "crop": pixels.crop,
    "translate": pixels.translate,
}
_PIXELS: dict[str, Callable] = {
    "random_resized_crop": pixels.random_resized_crop,
    "color": pixels.color,
    "cutout": pixels.cutout,
}
NAMES = frozenset({*_WINDOWS, *_PIXELS, _MIXUP})


class Augmentation:
    """What a setting asks for, in the order it names it; mixup follows all others."""

    def __init__(self, setting: str, *, seed: int, image_shape: tuple[int, int, int]) -> None:
        """``image_shape``: (height, width, channels) of the images.

        Raises:
            SettingsError: the setting is not one, or not for images so small.
        """
        numbers = dict(parse_augment(setting))
        side = min(image_shape[:2])
        for name, number in numbers.items():
            if name in ("crop", "cutout") and number >= side:
                refuse("Train", "augment", f"less than the images' {side} pixels after {name}:", setting)
        self._seed = seed
        self._quantiles = mixing.beta_quantiles(numbers.pop(_MIXUP)) if _MIXUP in numbers else None
        self._operations = tuple(numbers.items())
        # Traced once, with the epoch as an argument: to trace it anew takes up to a second at the start of each epoch.
        self._traced = tf.function(self._changed, autograph=False)
        self._traced_weights = tf.function(self._weights, autograph=False)

    @property
    def mixes(self) -> bool:
        """Whether labels are mixed with the images."""
        return self._quantiles is not None

    def images(self, images: tf.Tensor, places: tf.Tensor, epoch: int) -> tf.Tensor:
        """All operations but mixup.

        Args:
            images: uint8 (batch, height, width, channels).
            places: int (batch,), where each stands in the stored order of its split.
            epoch: which one, from 0.

        Returns:
            uint8 of the same shape.
        """
        return tf.ensure_shape(self._traced(images, places, tf.constant(epoch, tf.int64)), images.shape)

    def _changed(self, images: tf.Tensor, places: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        window = None
        for name, number in self._operations:
            draws = self._draws(places, epoch, name)
            if name in _WINDOWS:
                window = _WINDOWS[name](window or pixels.Window.whole(images), draws, number)
            else:
                images, window = _seen(images, window), None
                images = _PIXELS[name](images, draws, number)
        return _seen(images, window)

    def mixing(self, batches: tf.data.Dataset, epoch: int, workers: int) -> tf.data.Dataset:
        """(images, labels, places) of an epoch → (images, labels mixed), as mixing.py has them."""
        number = tf.constant(epoch, tf.int64)

        def weigh(images: tf.Tensor, labels: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return images, labels, self._traced_weights(places, number)

        weighed = batches.map(weigh, num_parallel_calls=workers)
        return mixing.with_the_one_before(weighed).map(mixing.mixed, num_parallel_calls=workers)

    def mixed_in_turn(self, images: tf.Tensor, places: tf.Tensor, epoch: int) -> tf.Tensor:
        """Images of one batch, each mixed with the one before it and the first with the last: for a picture."""
        labels = tf.zeros_like(places, tf.int32)
        return mixing.mixed(images, labels, self._weights(places, epoch), tf.roll(images, 1, 0), labels)[0]

    def _weights(self, places: tf.Tensor, epoch: tf.Tensor | int) -> tf.Tensor:
        return mixing.weights(self._draws(places, epoch, _MIXUP), self._quantiles)

    def _draws(self, places: tf.Tensor, epoch: tf.Tensor | int, name: str) -> Draws:
        return Draws(places, seed=self._seed, epoch=epoch, operation=name)


def _seen(images: tf.Tensor, window: pixels.Window | None) -> tf.Tensor:
    return images if window is None else window.of(images)
