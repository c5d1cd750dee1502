"""Decoding of images, and their resize to one size.

The operations are the same when records are written (``raw``) and in the input stream (``jpeg``, ``png``). The resize
is antialiased. After it, the shape is static.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import tensorflow as tf

from pipeline.records.features import ImageForm


def fingerprints(images: np.ndarray | Sequence[bytes]) -> np.ndarray:
    """FarmHash of the pixels or the encoded bytes of each image, uint64 (batch,). It is ten times as fast as sha256."""
    batch = images if isinstance(images, np.ndarray) else tf.constant(list(images), tf.string)
    return tf.fingerprint(batch).numpy().view("<u8")[:, 0]


def decode(encoded: tf.Tensor, form: ImageForm, shape: tuple[int | None, int | None, int]) -> tf.Tensor:
    """Decode JPEG, PNG, BMP or GIF files, string (batch,), to uint8 (batch, *shape).

    With the encoding "jpeg", all must be JPEGs. Without a size in the form, all images must have the ``shape``.
    """
    # For tiny images, the loop takes as long as decoding. Eight parallel iterations hide some of it.
    images = tf.map_fn(
        lambda content: tf.ensure_shape(_decoded(content, form, shape[2]), shape),
        encoded,
        parallel_iterations=8,
        fn_output_signature=tf.TensorSpec(shape, tf.uint8),
    )
    return tf.ensure_shape(images, [None, *shape])


def _decoded(content: tf.Tensor, form: ImageForm, channels: int) -> tf.Tensor:
    if form.encoding == "jpeg" and form.size and form.resize == "crop":
        # Decode only the middle square. JPEG's scaled decoding is faster, but its pixels would differ from those of
        # ``raw`` records and of ``predict``.
        height, width = tf.unstack(tf.io.extract_jpeg_shape(content)[:2])
        side = tf.minimum(height, width)
        window = tf.stack([(height - side) // 2, (width - side) // 2, side, side])
        image = tf.io.decode_and_crop_jpeg(content, window, channels=channels)
        return _resized(image, form, (form.size, form.size))
    image = tf.io.decode_image(content, channels=channels, expand_animations=False)
    image.set_shape([None, None, channels])
    return fit(image, form)


def fit_batch(images: np.ndarray, form: ImageForm) -> np.ndarray:
    """Apply ``fit`` to a batch of pixels, uint8 (batch, height, width, channels)."""
    if form.size in (0, *images.shape[1:3]) and images.shape[1] == images.shape[2]:
        return images
    shape = (form.size, form.size, images.shape[3])
    return tf.map_fn(lambda image: fit(image, form), images, fn_output_signature=tf.TensorSpec(shape, tf.uint8)).numpy()


def fit(image: tf.Tensor, form: ImageForm) -> tf.Tensor:
    """Resize one image, uint8 (height, width, channels), to uint8 (size, size, channels).

    ``crop`` keeps the middle of the longer side, ``pad`` adds black pixels, and ``stretch`` changes the proportions.
    """
    if not form.size:
        return image
    height, width = tf.unstack(tf.shape(image)[:2])
    if form.resize == "crop":
        side = tf.minimum(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        image = image[top : top + side, left : left + side]
    elif form.resize == "pad":
        # The longer side gets the size. Black pixels are added after the resize.
        longer = tf.maximum(height, width)
        target = tf.stack([height, width]) * form.size // longer
        image = _resized(image, form, tf.maximum(target, 1))
        image = tf.image.resize_with_crop_or_pad(image, form.size, form.size)
        return tf.ensure_shape(image, [form.size, form.size, image.shape[2]])
    return _resized(image, form, (form.size, form.size))


def _resized(image: tf.Tensor, form: ImageForm, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    """Resize with antialiasing. Each pixel of a smaller image is the mean of its area.

    ``tf.image.resize(antialias=True)`` takes four times as long. It is needed only if one side grows while the other
    shrinks.
    """
    resize = partial(tf.image.resize, image, size)
    smaller = partial(resize, method="area")
    larger = partial(resize, method="bilinear", antialias=form.resize == "stretch")
    # The choice takes 0.4 ms per image. It is not needed if all images become smaller.
    if form.smallest_side >= form.size:
        resized = smaller()
    else:
        resized = tf.cond(tf.reduce_all(tf.shape(image)[:2] >= size), smaller, larger)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
