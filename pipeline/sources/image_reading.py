"""Reading of ranges of image files. Threads read and check files one batch ahead. Pixels are decoded per batch."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TypeVar

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.errors import ChangedSourceError
from pipeline.records.features import IMAGE, LABEL, ImageForm
from pipeline.records.images import decode
from pipeline.sources.files import read_index
from pipeline.sources.image_files import UndecodableError, encode_plain, stored_bytes
from pipeline.sources.source import SOURCES, Location, SourceInfo

_BATCH = 128
# Files that are decoded and made smaller. A batch takes as long as eight photographs at camera size.
_SMALL_BATCH = 8

Batch = TypeVar("Batch")


def read_images(
    info: SourceInfo, location: Location, form: ImageForm, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Read a range of an indexed split. See ``source.read_batches``. ChangedSourceError: a file has changed."""
    indexed, channels = read_index(location.listing).splits[split], info.features[IMAGE].shape[2]
    read_file, size = partial(SOURCES.load(info.origin).read, location.folder), batch_size(form)

    def stored(index: int) -> bytes:
        path = indexed.paths[index]
        try:
            content = read_file(indexed.addresses[index] if indexed.addresses else path)
            if hashlib.sha256(content).hexdigest() != indexed.digests[index]:
                raise UndecodableError("changed")
            return stored_bytes(content, form, is_plain=indexed.plain[index], limits=info.value_range)
        except (OSError, UndecodableError) as error:
            raise ChangedSourceError(
                f"{path}: the file changed after the Source stage ({error}). Run again to rebuild the Source stage."
            ) from error

    def read(batch: range) -> dict:
        contents = [*map(stored, batch)]
        images = pixels_of(contents, form, channels) if form.encoding == "raw" else contents
        return {IMAGE: images, LABEL: np.array(indexed.labels[batch.start : batch.stop], info.features[LABEL].dtype)}

    yield from converted((range(first, min(first + size, stop)) for first in range(start, stop, size)), read)


def batch_size(form: ImageForm) -> int:
    """Number of images that a thread converts at once."""
    return _SMALL_BATCH if form.store_side else _BATCH


def converted(batches: Iterable[Batch], convert: Callable[[Batch], dict]) -> Iterator[dict]:
    """Convert batches in threads. Each thread has one batch, and one more waits, which bounds the images in memory."""
    workers, waiting = machine.granted_cores() + 1, deque()
    with ThreadPoolExecutor(workers) as pool:
        for batch in batches:
            waiting.append(pool.submit(convert, batch))
            if len(waiting) == workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def pixels_of(contents: Sequence[bytes], form: ImageForm, channels: int) -> np.ndarray:
    """Decode image files with TensorFlow to uint8 (files, height, width, channels)."""
    decoder = _decoder(form, channels)
    try:
        return decoder(tf.constant(contents)).numpy()
    except tf.errors.OpError:
        # Pillow alone decodes a few damaged files, and has found them usable.
        if len(contents) == 1:
            return decoder(tf.constant([encode_plain(contents[0])])).numpy()
        return np.concatenate([pixels_of([content], form, channels) for content in contents])


@cache
def _decoder(form: ImageForm, channels: int) -> tf.types.experimental.GenericFunction:
    shape = (form.size or None, form.size or None, channels)
    return tf.function(partial(decode, form=form, shape=shape), input_signature=[tf.TensorSpec([None], tf.string)])
