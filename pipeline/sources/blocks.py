"""Blocks: any range of a split, read and decoded; what the Beam job calls on its workers.

Apart from ``resolve``, because reading needs TensorFlow and finding out what a source holds does not.

A prepared TFDS dataset is read from its own TFRecord files, a batch of serialized examples at a time: ``as_dataset``
parses example by example: the same 50,000 images took it 1.4 times as long.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.errors import DamagedArtefactError, UnsupportedDatasetError
from pipeline.records.features import IMAGE, LABEL, TOKENS, Feature, ImageForm
from pipeline.records.images import decode, fit_batch
from pipeline.sources import Location, SourceInfo, synthetic, tfds, words
from pipeline.sources.file_blocks import read_files
from pipeline.sources.pictures import made_plain
from pipeline.sources.prepared import prepared_digest
from pipeline.sources.text_blocks import read_examples

_READ_BUFFER_BYTES = 8 * 2**20
# Small enough that a batch of decoded images stays in the processor's cache.
_DECODE_BATCH = 128
_DRAW_BATCH = 500
# How files of each encoding begin.
_SIGNATURES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}


def read_batches(
    info: SourceInfo, location: Location, form: ImageForm | None, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray | list[bytes]]]:
    """Examples ``start`` to ``stop - 1`` of a split, in the source's own order, a few hundred at a time.

    While a batch is worked on, the next ones are decoded in other threads.

    Yields:
        By feature: images in the form wanted, uint8 (batch, height, width, channels) where it is raw, else a list of
        encoded images; int64 labels (batch,). Of a text that is cut (text_blocks.py) uint8 tokens (batch, length).

    Raises:
        DatasetUnavailableError: the prepared copy is gone and cannot be prepared again.
        DamagedArtefactError: the copy is of another version, has changed since, or cannot be read to the end.
        UnsupportedDatasetError: an example has no label.
    """
    if TOKENS in info.features:
        yield from read_examples(info, Path(location.artefact), split, start, stop)
        return
    if info.origin == "synthetic":
        for first in range(start, stop, _DRAW_BATCH):
            images, labels = synthetic.draw_block(split, first, min(first + _DRAW_BATCH, stop))
            yield {IMAGE: fit_batch(images, form), LABEL: labels}
        return
    if location.listing:
        yield from read_files(info, location, form, split, start, stop)
        return
    builder, take_apart = _opened(info.dataset, info.version, info.digest, location, form)
    found = 0
    try:
        for images, labels in _decoded(_serialized(builder, split, start, stop), take_apart):
            _check_labels(info, split, labels)
            found += len(labels)
            yield {IMAGE: images if form.encoding == "raw" else _encoded(images.tolist(), form), LABEL: labels}
    except UnsupportedDatasetError:
        raise
    except (tf.errors.OpError, ValueError) as error:
        raise DamagedArtefactError(words.unreadable(builder.data_path, split, str(error).splitlines()[0])) from error
    if found != stop - start:
        raise DamagedArtefactError(words.unreadable(builder.data_path, split, f"{found} examples in [{start}:{stop}]"))


def _encoded(images: list[bytes], form: ImageForm) -> list[bytes]:
    """The images in the encoding of the form; most have it already."""
    if form.encoding == "image":
        return images
    signature = _SIGNATURES[form.encoding]
    return [image if image.startswith(signature) else made_plain(image, form.encoding) for image in images]


@cache
def _opened(
    dataset: str, version: str, digest: str, location: Location, form: ImageForm
) -> tuple[tfds.DatasetBuilder, tf.types.experimental.GenericFunction]:
    """Opened and traced once in a process, not for every block; prepares again where the copy has gone since.

    The function takes a batch of serialized examples and gives its images, decoded where they are stored raw, and
    labels.
    """
    builder = tfds.prepared_builder(dataset, location.tfds_data_dir)
    if str(builder.version) != version:
        raise DamagedArtefactError(
            f"{builder.data_path}: expected version {version} of {dataset}, found {builder.version}. "
            'Run "make pipeline" again: it takes up the version that is there.'
        )
    # Other workers, and the process that planned the blocks, have read it: what they remember spares reading it again.
    if prepared_digest(Path(builder.data_path), Path(location.artefact) if location.artefact else None) != digest:
        raise DamagedArtefactError(
            f"{builder.data_path}: expected the copy of {dataset} that was found before, it has other files by now. "
            'Run "make pipeline" again: it takes up the copy that is there.'
        )
    image_key, label_key = tfds.supervised_keys(builder)
    feature = builder.info.features[image_key]
    stored = Feature(feature.shape, "uint8", "image")
    spec = {image_key: tf.io.FixedLenFeature([], tf.string), label_key: tf.io.FixedLenFeature([], tf.int64)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def take_apart(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        parsed = tf.io.parse_example(serialized, spec)
        images = parsed[image_key]
        if form.encoding == "raw":
            images = decode(images, form, form.shape(stored))
        return images, parsed[label_key]

    return builder, take_apart


def _check_labels(info: SourceInfo, split: str, labels: np.ndarray) -> None:
    # TFDS gives -1 where a split has no labels.
    if labels.min() < 0 or labels.max() >= len(info.label_names):
        raise UnsupportedDatasetError(
            f"{info.dataset}: expected labels from 0 to {len(info.label_names) - 1}, the {split} split holds "
            f"{labels.min()} to {labels.max()}. Choose another with [Source] dataset or --Source-dataset."
        )


def _decoded(records: tf.data.Dataset, take_apart: tf.types.experimental.GenericFunction) -> tf.data.NumpyIterator:
    # One more than there are cores keeps them busy while a batch is handed over.
    workers = machine.granted_cores() + 1
    decoded = records.batch(_DECODE_BATCH).map(take_apart, num_parallel_calls=workers, deterministic=True)
    options = tf.data.Options()
    # See stream.py: an autotuned iterator is slow to close, and here one is opened for every block.
    options.autotune.enabled = False
    return decoded.prefetch(workers).with_options(options).as_numpy_iterator()


def _serialized(builder: tfds.DatasetBuilder, split: str, start: int, stop: int) -> tf.data.Dataset:
    """The range's records, one file after the other: the n-th example does not depend on how a split is cut."""
    dataset = tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
    for part in builder.info.splits[f"{split}[{start}:{stop}]"].file_instructions:
        records = tf.data.TFRecordDataset(part.filename, buffer_size=_READ_BUFFER_BYTES)
        dataset = dataset.concatenate(records.skip(part.skip).take(part.take))
    return dataset
