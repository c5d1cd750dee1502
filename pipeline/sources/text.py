"""Text: one long text as a source (one kind of source: **source** → records → shards → …).

A split of the source is a text: what a file holds, or all files of a folder in the order of their paths, joined as they
are. The source's artefact holds it as tokens, one byte each: what was read once need not be found, decoded and compared
again, and the vocabulary is known before any record is written.

text_blocks.py cuts it into examples.
"""

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.config.data import SourceSettings
from pipeline.config.refusal import refuse
from pipeline.records.features import text_spec
from pipeline.records.keys import SPLITS
from pipeline.records.vocabulary import Vocabulary
from pipeline.sources import words
from pipeline.sources.encodings import other_encoding
from pipeline.sources.found import dataset_name, files_folder, find
from pipeline.sources.listing import ListedSplit, Listing, is_inside, read_file

_logger = logging.getLogger(__name__)


def read_text(settings: SourceSettings) -> tuple[dict, Listing, dict[str, np.ndarray]]:
    """The text of a file or a folder.

    Returns:
        The fields of ``SourceInfo`` but its origin, the listing of its files, and each split's tokens.

    Raises:
        SettingsError: there is none, or it is not UTF-8.
    """
    folder = files_folder(settings)
    found, present = find(settings)
    listed, texts = {}, {}
    if found.taken_for:
        _logger.info(words.taken_for(found.taken_for))
    for split, entries in found.examples.items():
        paths = [path for path, _ in entries]
        _refuse_links_out(folder, paths, settings)
        contents = [_content(folder / path, settings) for path in paths]
        # A mark of the byte order is no part of a text.
        texts[split] = "".join(_decoded(path, one, settings) for path, one in zip(paths, contents, strict=True))
        if not texts[split]:
            refuse("Source", "path", words.A_TEXT, settings.path, words.empty_text(split))
        listed[split] = ListedSplit(
            paths=paths,
            labels=[0] * len(paths),
            stamps=[present[path] for path in paths],
            digests=[hashlib.sha256(one).hexdigest() for one in contents],
            plain=[True] * len(paths),
        )
    listing = Listing(listed, [], {})
    info, tokens = described(texts, test_share=settings.test_share)
    if len(info["label_names"]) < 2:
        refuse("Source", "path", words.A_TEXT_TO_LEARN, settings.path, words.one_character(info["label_names"][0]))
    return {**info, "dataset": dataset_name(settings), "version": "1", "digest": listing.digest()}, listing, tokens


def described(texts: Mapping[str, str], *, test_share: float) -> tuple[dict, dict[str, np.ndarray]]:
    """What there is to say of texts by split, the fields of ``SourceInfo`` that follow from them, and their tokens."""
    vocabulary = Vocabulary.of(texts.values())
    tokens = {split: vocabulary.encode(texts[split]) for split in SPLITS if split in texts}
    return {
        "features": text_spec(),
        "label_names": vocabulary.names,
        "num_examples": {split: len(one) for split, one in tokens.items()},
        "test_share": 0.0 if "test" in texts else test_share,
        "bytes_per_example": 1,
    }, tokens


def write_tokens(folder: Path, tokens: Mapping[str, np.ndarray]) -> None:
    """Leave each split's tokens in the source's artefact."""
    for split, one in tokens.items():
        one.tofile(tokens_path(folder, split))


def tokens_path(folder: Path, split: str) -> Path:
    """A split's tokens in the source's artefact."""
    return folder / f"{split}.tokens"


def _refuse_links_out(folder: Path, paths: Sequence[str], settings: SourceSettings) -> None:
    # A file that was named may lie anywhere; what is found in a folder is read only if it lies there.
    if not Path(settings.path).expanduser().is_dir():
        return
    root = os.path.realpath(folder)
    for path in paths:
        if not is_inside(real := os.path.realpath(folder / path), root):
            refuse("Source", "path", words.A_TEXT, settings.path, words.leads_out(path, real))


def _content(path: Path, settings: SourceSettings) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        refuse("Source", "path", words.A_TEXT, settings.path, words.unreadable_folder(str(path), error.strerror))


def _decoded(path: str, content: bytes, settings: SourceSettings) -> str:
    """The text of a file, its lines ended by a line feed alone."""
    if name := other_encoding(content):
        refuse("Source", "path", words.A_TEXT, settings.path, f" {words.quoted(path)}:{words.encoding(name)}")
    if zeros := content.count(0):
        refuse("Source", "path", words.A_TEXT, settings.path, words.zero_bytes(path, zeros))
    text = content.decode("utf-8-sig")
    if carriage_returns := text.count("\r"):
        _logger.info(words.line_ends(path, carriage_returns))
    return text.replace("\r\n", "\n").replace("\r", "\n")
