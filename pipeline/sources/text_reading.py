"""Read examples of a text from its tokens.

An example has ``sequence_length`` + 1 tokens, and all but the first are predicted. The last token of an example is the
first of the next, so each token but the first is predicted once. Tokens at the end that fill no example are left out.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.errors import DamagedArtefactError
from pipeline.records.features import content_name
from pipeline.records.vocabulary import Vocabulary
from pipeline.sources.source import Location, SourceInfo
from pipeline.sources.text import tokens_path

_READ_BATCH = 4_096


def read_tokens(
    info: SourceInfo, location: Location, form: object, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray]]:
    """Examples ``start`` to ``stop - 1`` of a split, in the order of the text, see ``reading.read_batches``.

    Raises:
        DamagedArtefactError: the source's artifact is missing, or contains another text.
    """
    name = content_name(info.features)
    (size,) = info.features[name].shape
    path = tokens_path(Path(location.artefact), split)
    try:
        tokens = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError):
        tokens = np.empty(0, np.uint8)
    if len(tokens) < stop * (size - 1) + 1:
        raise DamagedArtefactError(
            f'{path}: expected the tokens of the text, they are not there as they were. Run "make pipeline" again.'
        )
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)[:: size - 1]
    for first in range(start, stop, _READ_BATCH):
        yield {name: np.ascontiguousarray(windows[first : min(first + _READ_BATCH, stop)])}


def text_digest(info: SourceInfo, artifact: Path) -> str:
    """Hex sha256 of a text in UTF-8, all its splits one after the other."""
    vocabulary, digest = Vocabulary(info.label_names), hashlib.sha256()
    for split in info.num_examples:
        tokens = np.fromfile(tokens_path(artifact, split), np.uint8)
        digest.update(tokens.tobytes() if vocabulary.is_bytes else vocabulary.decode(tokens).encode())
    return digest.hexdigest()
