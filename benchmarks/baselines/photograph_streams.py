"""What people use for a folder of photographs: Keras's utility, TFDS's ImageFolder, and decoding alone as the limit.

keras.io/api/data_loading/image, tensorflow.org/datasets/api_docs/python/tfds/folder_dataset/ImageFolder. Each yields
batches of square images of one size, cropped in the middle.
"""

from pathlib import Path

import keras
import tensorflow as tf
import tensorflow_datasets as tfds


def keras_dataset(folder: Path, size: int, batch_size: int) -> tf.data.Dataset:
    """float32 images, as the utility gives them."""
    return keras.utils.image_dataset_from_directory(
        folder, image_size=(size, size), batch_size=batch_size, crop_to_aspect_ratio=True, shuffle=True, verbose=False
    ).prefetch(tf.data.AUTOTUNE)


def tfds_dataset(folder: Path, size: int, batch_size: int) -> tf.data.Dataset:
    """uint8 images of TFDS's builder, which wants ``folder/<split>/<label>``, cropped and resized in a map."""
    builder = tfds.folder_dataset.ImageFolder(str(folder))
    examples = builder.as_dataset(split="train", shuffle_files=True, as_supervised=True)
    return (
        examples.map(lambda image, label: (_fit(image, size), label), num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def decoding_alone(contents: list[bytes], size: int, batch_size: int) -> tf.data.Dataset:
    """The files' bytes in memory, decoded but for what is cropped away and resized, not antialiased: the limit."""

    def decode(content: tf.Tensor) -> tf.Tensor:
        height, width = tf.unstack(tf.io.extract_jpeg_shape(content)[:2])
        side = tf.minimum(height, width)
        window = tf.stack([(height - side) // 2, (width - side) // 2, side, side])
        image = tf.io.decode_and_crop_jpeg(content, window, channels=3)
        return tf.cast(tf.image.resize(image, (size, size)), tf.uint8)

    images = tf.data.Dataset.from_tensor_slices(tf.constant(contents)).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return images.batch(batch_size, drop_remainder=True).map(lambda image: (image, image[:, 0, 0, 0])).prefetch(2)


def _fit(image: tf.Tensor, size: int) -> tf.Tensor:
    side = tf.reduce_min(tf.shape(image)[:2])
    image = tf.image.resize_with_crop_or_pad(image, side, side)
    return tf.cast(tf.image.resize(image, (size, size)), tf.uint8)
