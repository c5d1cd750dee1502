"""Other input streams of photographs: Keras's utility, Grain on ArrayRecord, and decoding alone as the limit.

keras.io/api/data_loading/image and google-grain.readthedocs.io. Each yields batches of square images of one size,
cropped in the middle.
"""

import io
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

from pipeline import machine

_CORES = machine.granted_cores()


def keras_dataset(folder: Path, size: int, batch_size: int) -> tf.data.Dataset:
    """float32 images, as the utility gives them."""
    return keras.utils.image_dataset_from_directory(
        folder, image_size=(size, size), batch_size=batch_size, crop_to_aspect_ratio=True, shuffle=True, verbose=False
    ).prefetch(tf.data.AUTOTUNE)


def write_array_record(contents: Sequence[bytes], file: Path) -> None:
    """Write the bytes of each photograph as a record."""
    from array_record.python.array_record_module import ArrayRecordWriter

    # Random access to single records, as Grain's documentation recommends.
    writer = ArrayRecordWriter(str(file), "group_size:1")
    for content in contents:
        writer.write(content)
    writer.close()


def grain_dataset(file: Path, size: int, batch_size: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """uint8 images of an ArrayRecord file, shuffled, decoded by Pillow in two processes."""
    import grain
    from absl import flags

    # Grain reads flags of absl, which only a program of absl parses.
    flags.FLAGS.mark_as_parsed()
    dataset = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(file))).seed(0).shuffle()
    batches = dataset.map(partial(_decoded, size=size)).to_iter_dataset().batch(batch_size, drop_remainder=True)
    return batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=2))


def _decoded(content: bytes, size: int) -> tuple[np.ndarray, int]:
    """Decode the center of a photograph, uint8 (size, size, 3), and return it with a label."""
    image = Image.open(io.BytesIO(content))
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    box = (left, top, left + side, top + side)
    return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box)), 0


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


def decode_files(folder: Path) -> None:
    """Read and decode each JPEG file of ``folder/<label>`` once, on all cores."""
    options = tf.data.Options()
    options.autotune.enabled = False
    files = tf.data.Dataset.list_files(str(folder / "*" / "*.jpg"), shuffle=False).with_options(options)
    # One pixel of each, so that copies take no time.
    pixels = files.map(lambda file: tf.io.decode_jpeg(tf.io.read_file(file))[0, 0], num_parallel_calls=2 * _CORES)
    for _ in pixels.batch(64):
        pass
