"""Text blocks: a text cut into examples, and any range of them (the sources' aid; what the Beam job calls).

Examples follow one another: of ``sequence_length`` + 1 tokens each, of which all but the first are to be predicted; the
last of an example is the first of the next. So each token of a split but its first is predicted once; those at its
end that fill no example are left out. Neighbours are alike and share context, so splits are regions of the text:
shards/splits.py divides by place what it divides by a hash where examples have nothing to do with one another.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipeline.errors import DamagedArtefactError
from pipeline.records.features import TOKENS
from pipeline.records.vocabulary import Vocabulary
from pipeline.sources import words
from pipeline.sources.source import SourceInfo
from pipeline.sources.text import tokens_path

_READ_BATCH = 4_096


def read_examples(
    info: SourceInfo, artefact: Path, split: str, start: int, stop: int
) -> Iterator[dict[str, np.ndarray]]:
    """Examples ``start`` to ``stop - 1`` of a split, in the order of the text, as ``blocks.read_batches`` gives them.

    Raises:
        DamagedArtefactError: the source's artefact is gone, or holds another text.
    """
    (size,) = info.features[TOKENS].shape
    path = tokens_path(artefact, split)
    try:
        tokens = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise DamagedArtefactError(words.gone_text(path)) from error
    if len(tokens) < stop * (size - 1) + 1:
        raise DamagedArtefactError(words.gone_text(path))
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)[:: size - 1]
    for first in range(start, stop, _READ_BATCH):
        yield {TOKENS: np.ascontiguousarray(windows[first : min(first + _READ_BATCH, stop)])}


def text_digest(info: SourceInfo, artefact: Path) -> str:
    """Hex sha256 of a text in UTF-8, all its splits one after the other."""
    vocabulary, digest = Vocabulary(info.label_names), hashlib.sha256()
    for split in info.num_examples:
        tokens = np.fromfile(tokens_path(artefact, split), np.uint8)
        digest.update(tokens.tobytes() if vocabulary.is_bytes else vocabulary.decode(tokens).encode())
    return digest.hexdigest()
