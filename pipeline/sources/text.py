"""Texts whose next tokens a model predicts, and texts with a label each, in folders or in a table.

The source's artifact contains the tokens of a text, of one byte, in a file per split. It contains texts with labels in
a row, and where each of them ends. They are thus read and checked only once.

An example of a text has ``sequence_length`` + 1 tokens. A model predicts all its tokens except the first. The last
token of an example is the first of the next one, so each token is predicted once. Remaining tokens are left out.
"""

import codecs
import contextlib
import hashlib
import logging
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.records.features import KEY, LABEL, SPLITS, TEXT, Feature
from pipeline.sources.file_source import FileSource, LabeledSource, SourceFiles, labels_in, split_called
from pipeline.sources.files import (
    Examined,
    Example,
    FileIndex,
    IndexedSplit,
    Skipped,
    UndecodableError,
    decode_text,
    first_bytes,
    quoted,
    read_below,
)
from pipeline.sources.image_folder import LabelFolders
from pipeline.sources.source import SourceInfo
from pipeline.sources.table import CLASSES, KNOWN_COLUMNS, Table

#: Feature spec of a text, with tokens of its vocabulary and a key.
FEATURES = {KEY: Feature((), "string", "utf8"), "tokens": Feature((None,), "uint8")}

_logger = logging.getLogger(__name__)


class Text(FileSource):
    """A text file in UTF-8 or a folder of text files."""

    reader = "pipeline.sources.reading:read_tokens"

    @classmethod
    def has_file(cls, path: Path) -> bool:
        begin = first_bytes(path)
        with contextlib.suppress(UnicodeDecodeError):
            # The last character may be cut off.
            codecs.getincrementaldecoder("utf-8")().decode(begin)
            return bool(begin) and b"\0" not in begin
        return False

    def find(self, artifact: Path) -> SourceInfo:
        folder, files = self.folder(), self.find_files()
        files.log_split_names()
        splits, texts = {}, {}
        for split, entries in files.examples.items():
            contents, digests = zip(*(self._read(folder, one.path) for one in entries), strict=True)
            texts[split] = "".join(contents)
            if not texts[split]:
                self.refuse(f" The {split} split is empty.")
            splits[split] = IndexedSplit([one.path for one in entries], [one.stamp for one in entries], digests)
        facts = written_tokens(texts, artifact, test_share=self.settings.test_share)
        if len(facts["label_names"]) < 2:
            self.refuse(expected="a text of at least two different characters")
        index = FileIndex(splits, [], {})
        index.write(artifact)
        return SourceInfo(dataset=self.name(), origin="text", version="1", digest=index.digest(), **facts)

    def find_files(self) -> SourceFiles:
        """The files of each split. A file, or a folder without folders of splits, is the train split."""
        stamps_by_path = self.all_stamps()
        tops = {path.partition("/")[0] for path in stamps_by_path if "/" in path}
        has_splits = bool(tops) and all(map(split_called, tops))
        if has_splits and (labels := labels_in(stamps_by_path)):
            self.refuse(
                f" The folders {', '.join(map(quoted, labels[:5]))} look like labels, which a text does not have. To "
                "learn the labels, set dataset = text_folder. Pass one of these folders to join its texts."
            )
        # Beside folders of splits a file is a note.
        split_of = {path: path.partition("/")[0] if has_splits else "train" for path in stamps_by_path}
        paths = [path for path in stamps_by_path if "/" in path or not has_splits]
        files = SourceFiles([Example(path, stamp=stamps_by_path[path], split=split_of[path]) for path in paths])
        if "train" not in files.examples:
            self.refuse(" It contains no files of the train split.")
        return files

    def _read(self, folder: Path, path: str) -> tuple[str, str]:
        """Text and digest of a file."""
        # A file that is named may be a link to anywhere.
        at = (str(folder), path) if self.is_folder() else os.path.split(os.path.realpath(folder / path))
        try:
            content = read_below(*at)
            text = plain_text(content)
        except UndecodableError as error:
            self.refuse(f" {quoted(path)}: {error}.")
        if returns := content.count(b"\r"):
            _logger.info("%s: converting %s carriage returns to line feeds.", quoted(path), returns)
        return text, hashlib.sha256(content).hexdigest()


def written_tokens(texts: Mapping[str, str], folder: Path, *, test_share: float) -> dict:
    """Write the tokens of texts by split to ``folder``. Returns fields of ``SourceInfo``."""
    # Luigi's process imports this module, but no NumPy.
    from pipeline.records.vocabulary import Vocabulary

    vocabulary, num_tokens = Vocabulary.of(texts.values()), {}
    for split in [split for split in SPLITS if split in texts]:
        tokens = vocabulary.encode(texts[split])
        num_tokens[split] = len(tokens)
        tokens.tofile(folder / f"{split}.tokens")
    return {
        "features": FEATURES,
        "problem": "next_token",
        "label_names": vocabulary.names,
        "num_examples": num_tokens,
        "test_share": 0.0 if "test" in texts else test_share,
        "bytes_per_example": 1,
    }


class LabeledTexts(LabeledSource):
    """Texts with labels. Subclasses find them."""

    reader = "pipeline.sources.reading:read_texts"
    noun = "text"

    def content(self, folder: Path, example: Example) -> bytes:
        """Read the file or cell of a text. Raises UndecodableError."""
        return read_below(str(folder), example.path)

    def examine(self, files: SourceFiles, artifact: Path) -> tuple[Mapping[str, Examined], Sequence[Skipped]]:
        folder, examined, skipped = self.folder(), {}, []
        for split, examples in files.examples.items():
            ends, end = [], 0
            with (artifact / f"{split}.texts").open("wb") as output:
                for example in examples:
                    content = b""
                    try:
                        text = cleaned(content := self.content(folder, example))
                    except UndecodableError as error:
                        digest = hashlib.sha256(content).hexdigest() if content else ""
                        skipped.append(Skipped(example.path, example.stamp, digest, error.reason, error.detail))
                        continue
                    examined[example.path] = Examined(digest=hashlib.sha256(content).hexdigest(), num_bytes=len(text))
                    ends.append(end := end + len(text))
                    output.write(text)
            (artifact / f"{split}.ends").write_bytes(struct.pack(f"<{len(ends)}q", *ends))
        return examined, skipped

    def facts(self, files: SourceFiles, examined: Sequence[Examined]) -> dict:
        # The shape is the number of bytes of the longest text.
        text = Feature((max(text.num_bytes for text in examined),), "uint8")
        features = {KEY: Feature((), "string", "utf8"), LABEL: Feature((), "int64"), TEXT: text}
        return {"problem": "text_classification", "features": features}


class TextFolder(LabelFolders, LabeledTexts):
    """A folder of texts, <label>/<text> or train/<label>/<text>."""


class TextTable(LabeledTexts, Table):
    """A table of texts: a CSV, TSV or Parquet file.

    A text is called after the number of its row.
    """

    content_column = "text_column"

    @classmethod
    def has_file(cls, path: Path) -> bool:
        names = {name.lower() for name in cls.names_in(path)}
        texts, paths = (names & {kind, *KNOWN_COLUMNS[kind]} for kind in ("text", "path"))
        return bool(texts) and not paths

    def names_of(self, cells: Sequence[str]) -> list[str]:
        return [f"row {number}" for number in range(1, len(cells) + 1)]

    def find_files(self) -> SourceFiles:
        files = self.read_table()
        if files.problem != CLASSES:
            self.refuse(f" It is for the problem {files.problem} of images.", "a column of labels", "label_column")
        return files

    def content(self, folder: Path, example: Example) -> bytes:
        return self.cells[example.path].encode()


def plain_text(content: bytes) -> str:
    """Decode a text in UTF-8, with line feeds as line ends and without a byte order mark.

    UndecodableError: the text has another encoding, or contains zero bytes, which pad the records.
    """
    text = decode_text(content)
    if "\0" in text:
        raise UndecodableError("a text with zero bytes")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def cleaned(content: bytes) -> bytes:
    """Return ``plain_text`` in UTF-8 without ASCII white space around it. UndecodableError: also if nothing remains."""
    if text := plain_text(content).encode().strip():
        return text
    raise UndecodableError("empty text")
