"""File blocks: any range of a listed split, read file by file (the sources' aid; what the Beam job calls).

Files are read, checked against the listing's digests and made plain where they are not by as many threads as there are
cores, a batch ahead; a batch is then decoded at once, where pixels are wanted.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.errors import ChangedSourceError
from pipeline.records.features import IMAGE, LABEL, ImageForm
from pipeline.records.images import decode
from pipeline.sources import words
from pipeline.sources.listing import ListedSplit, read_file, read_listing
from pipeline.sources.pictures import UndecodableError, made_plain
from pipeline.sources.source import Location, SourceInfo

_BATCH = 128


def read_files(
    info: SourceInfo, location: Location, form: ImageForm, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray | list[bytes]]]:
    """Examples ``start`` to ``stop - 1`` of a listed split, in its order, as ``blocks.read_batches`` gives them.

    Raises:
        ChangedSourceError: a file is gone or has changed since it was listed.
    """
    listed, folder = read_listing(location.listing).splits[split], Path(location.folder)
    how = form, info.features[IMAGE].shape[2], info.value_range
    batches = [range(first, min(first + _BATCH, stop)) for first in range(start, stop, _BATCH)]
    # What is read ahead is bounded: each worker has one batch at a time, and one more waits.
    workers = machine.granted_cores() + 1
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(_read, folder, listed, batch, *how) for batch in batches[:workers]]
        for number, batch in enumerate(batches):
            images = waiting.pop(0).result()
            if number + workers < len(batches):
                waiting.append(pool.submit(_read, folder, listed, batches[number + workers], *how))
            yield {IMAGE: images, LABEL: np.array(listed.labels[batch.start : batch.stop], np.int64)}


def _read(
    folder: Path, listed: ListedSplit, batch: range, form: ImageForm, channels: int, value_range: tuple[int, int]
) -> np.ndarray | list[bytes]:
    contents = [_content(folder, listed, index, form, value_range) for index in batch]
    return pixels_of(contents, form, channels) if form.encoding == "raw" else contents


def pixels_of(contents: Sequence[bytes], form: ImageForm, channels: int) -> np.ndarray:
    """Pixels of image files that Pillow can decode: uint8 (files, height, width, channels)."""
    decoder = _decoder(form, channels)
    try:
        return decoder(tf.constant(contents)).numpy()
    except tf.errors.OpError:
        # A few damaged files can be decoded by Pillow alone, which found that they can be used.
        return np.concatenate([_decoded(decoder, content) for content in contents])


def _decoded(decoder: Callable[[tf.Tensor], tf.Tensor], content: bytes) -> np.ndarray:
    try:
        return decoder(tf.constant([content])).numpy()
    except tf.errors.OpError:
        return decoder(tf.constant([made_plain(content)])).numpy()


def _content(folder: Path, listed: ListedSplit, index: int, form: ImageForm, value_range: tuple[int, int]) -> bytes:
    """The file as it is stored: its own bytes where they are plain and of the encoding wanted."""
    path = os.path.join(folder, listed.paths[index])
    try:
        content = read_file(path)
        if hashlib.sha256(content).hexdigest() != listed.digests[index]:
            raise ChangedSourceError(words.changed_file(path, "it has changed"))
        own = "jpeg" if content.startswith(b"\xff\xd8\xff") else "png"
        # Pixels are those of the file itself, a picture that was not plain loses nothing on its way to them.
        wanted = {"raw": own if listed.plain[index] else "png", "image": own}.get(form.encoding, form.encoding)
        return content if listed.plain[index] and wanted == own else made_plain(content, wanted, value_range)
    except (OSError, UndecodableError) as error:
        raise ChangedSourceError(words.changed_file(path, str(error))) from error


@cache
def _decoder(form: ImageForm, channels: int) -> tf.types.experimental.GenericFunction:
    side = form.size or None
    shape = (side, side, channels)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def decode_batch(contents: tf.Tensor) -> tf.Tensor:
        return decode(contents, form, shape)

    return decode_batch
