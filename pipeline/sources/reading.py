"""Reading of ranges of image files and of texts.

Threads read and check image files one batch ahead. Pixels are decoded per batch. Texts are mapped into memory.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf

from pipeline import machine
from pipeline.errors import ChangedSourceError, DamagedArtifactError
from pipeline.records.features import IMAGE, LABEL, TEXT, ImageForm, content_name
from pipeline.records.images import decode
from pipeline.records.vocabulary import Vocabulary
from pipeline.sources.files import read_index
from pipeline.sources.image_files import UndecodableError, encode_plain, stored_bytes
from pipeline.sources.source import SOURCES, Location, SourceInfo

# Number of images, and of texts or windows of a text, that are read at once.
_BATCH, _TEXTS = 128, 4_096
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


def as_rows(texts: Sequence[bytes], length: int) -> np.ndarray:
    """Return the first bytes of texts as uint8 (texts, length), padded with zeros. No character is cut in two."""
    rows = np.zeros((len(texts), length), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        # A cut may leave a part of the last character.
        start = text[:length] if len(text) <= length else text[:length].decode("utf-8", "ignore").encode()
        row[: len(start)] = np.frombuffer(start, np.uint8)
    return rows


def read_texts(
    info: SourceInfo, location: Location, form: object, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray]]:
    """Read a range of a split. See ``source.read_batches``."""
    (length,), labels = info.features[TEXT].shape, read_index(location.listing).splits[split].labels
    ends = [0, *_ends(Path(location.artifact), split, info.num_examples[split])]
    texts = _mapped(Path(location.artifact, f"{split}.texts"), int(ends[-1]))
    for first in range(start, stop, _TEXTS):
        last = min(first + _TEXTS, stop)
        batch = [texts[ends[row] : ends[row + 1]].tobytes() for row in range(first, last)]
        yield {TEXT: as_rows(batch, length), LABEL: np.array(labels[first:last], np.int64)}


def count_longer(info: SourceInfo, artifact: Path) -> int:
    """Return the number of texts that are longer than in the records, with the features of ``SourceInfo.cut``."""
    (length,) = info.features[TEXT].shape
    sizes = [np.diff(_ends(artifact, split, number), prepend=0) for split, number in info.num_examples.items()]
    return sum(int((size > length).sum()) for size in sizes)


def _ends(artifact: Path, split: str, num_examples: int) -> np.ndarray:
    return _mapped(artifact / f"{split}.ends", 8 * num_examples).view("<i8")


def read_tokens(
    info: SourceInfo, location: Location, form: object, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray]]:
    """Read a range of a split. See ``source.read_batches``."""
    name = content_name(info.features)
    (size,) = info.features[name].shape
    tokens = _mapped(Path(location.artifact, f"{split}.tokens"), stop * (size - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)[:: size - 1]
    for first in range(start, stop, _TEXTS):
        yield {name: np.ascontiguousarray(windows[first : min(first + _TEXTS, stop)])}


def _mapped(path: Path, num_bytes: int) -> np.ndarray:
    """Map a file of the source's artifact into memory, uint8. DamagedArtifactError: it is shorter, or missing."""
    found = path.stat().st_size if path.exists() else 0
    if found < num_bytes:
        raise DamagedArtifactError(f'{path}: expected {num_bytes:,} bytes, got {found:,}. Run "tensorcraft run" again.')
    # An empty file cannot be mapped.
    return np.memmap(path, np.uint8, mode="r") if found else np.empty(0, np.uint8)


def text_digest(info: SourceInfo, artifact: Path) -> str:
    """Hex sha256 of the concatenated splits of a text in UTF-8."""
    vocabulary, digest = Vocabulary(info.label_names), hashlib.sha256()
    for split in info.num_examples:
        tokens = np.fromfile(artifact / f"{split}.tokens", np.uint8)
        digest.update(tokens.tobytes() if vocabulary.is_bytes else vocabulary.decode(tokens).encode())
    return digest.hexdigest()
