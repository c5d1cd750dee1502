"""Texts with a label each, in folders with the layout of ``LabelFolders`` or in a table with a row per text.

The source's artifact contains the texts of each split in a row, and where each of them ends. They are thus read and
checked only once. A record contains the first bytes of a text in UTF-8, so all records have the same length.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.records.features import KEY, LABEL, TEXT, Feature
from pipeline.sources.file_index import Examined, Example, Skipped, read_index
from pipeline.sources.file_source import LabeledSource, SourceFiles
from pipeline.sources.files import UndecodableError, detect_encoding, read_below, stamps_of
from pipeline.sources.image_folder import LabelFolders
from pipeline.sources.source import Location, SourceInfo
from pipeline.sources.table import CLASSES, KNOWN_COLUMNS, Table
from pipeline.sources.text import READ_AT_ONCE, mapped_file

if TYPE_CHECKING:
    import numpy as np


class LabeledTexts(LabeledSource):
    """Texts with labels. Subclasses find them."""

    reader = "pipeline.sources.labeled_texts:read_texts"
    noun = "text"

    def content(self, folder: Path, example: Example) -> bytes:
        """Read the file or cell of a text. Raises UndecodableError."""
        return read_below(str(folder), example.path)

    def examine(self, files: SourceFiles, artifact: Path) -> tuple[Mapping[str, Examined], Sequence[Skipped]]:
        """Check every text, and write the texts of each split to the artifact."""
        # Luigi's process imports this module, but no NumPy.
        import numpy as np

        folder, examined, skipped = self.folder(), {}, []
        for split, examples in files.examples.items():
            ends, end = [], 0
            with (artifact / f"{split}.texts").open("wb") as output:
                for example in examples:
                    content = b""
                    try:
                        content = self.content(folder, example)
                        text = cleaned(content)
                    except UndecodableError as error:
                        digest = hashlib.sha256(content).hexdigest() if content else ""
                        skipped.append(Skipped(example.path, example.stamp, digest, error.reason, error.detail))
                        continue
                    examined[example.path] = Examined(digest=hashlib.sha256(content).hexdigest(), num_bytes=len(text))
                    ends.append(end := end + len(text))
                    output.write(text)
            np.array(ends, "<i8").tofile(artifact / f"{split}.ends")
        return examined, skipped

    def facts(self, files: SourceFiles, examined: Sequence[Examined]) -> dict:
        """Fields of ``SourceInfo`` that depend on the texts. Their shape is the number of bytes of the longest."""
        features = {
            KEY: Feature((), "string", "utf8"),
            LABEL: Feature((), "int64"),
            TEXT: Feature((max(text.num_bytes for text in examined),), "uint8"),
        }
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
        """Whether a file is a table with a column of texts, and none of paths."""
        names = {name.lower() for name in cls.names_in(path)}
        texts, paths = (names & {kind, *KNOWN_COLUMNS[kind]} for kind in ("text", "path"))
        return bool(texts) and not paths

    def names_of(self, cells: Sequence[str]) -> list[str]:
        """Names of the texts."""
        return [f"row {number}" for number in range(1, len(cells) + 1)]

    def find_files(self) -> SourceFiles:
        """The texts in the table."""
        cells, problem, label_names, examples = self.examples()
        if problem != CLASSES:
            self.refuse(f" It is for the problem {problem} of images.", "a column of labels", "label_column")
        self._cells = {example.path: cell for cell, example in zip(cells, examples, strict=True)}
        return SourceFiles(examples, stamps_of(self.folder(), [self.path.name]), label_names)

    def content(self, folder: Path, example: Example) -> bytes:
        """The cell of a text."""
        return self._cells[example.path].encode()


def cleaned(content: bytes) -> bytes:
    """Return a text in UTF-8 with line feeds as line ends, without a byte order mark and white space around it.

    UndecodableError: the text has another encoding, is empty or contains zero bytes, which pad the records.
    """
    if detect_encoding(content):
        raise UndecodableError("not UTF-8 text")
    text = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip()
    if not text:
        raise UndecodableError("empty text")
    if b"\0" in text:
        raise UndecodableError("a text with zero bytes")
    return text


def as_rows(texts: Sequence[bytes], length: int) -> "np.ndarray":
    """Return the first bytes of texts as uint8 (texts, length), padded with zeros. No character is cut in two."""
    import numpy as np

    rows = np.zeros((len(texts), length), np.uint8)
    for row, text in zip(rows, texts, strict=True):
        # A cut may leave a part of the last character.
        start = text[:length] if len(text) <= length else text[:length].decode("utf-8", "ignore").encode()
        row[: len(start)] = np.frombuffer(start, np.uint8)
    return rows


def read_texts(
    info: SourceInfo, location: Location, form: object, split: str, start: int, stop: int
) -> Iterator[dict[str, "np.ndarray"]]:
    """Read a range of a split. See ``source.read_batches``."""
    import numpy as np

    (length,), labels = info.features[TEXT].shape, read_index(location.listing).splits[split].labels
    ends = [0, *_ends(Path(location.artifact), split, info.num_examples[split])]
    texts = mapped_file(Path(location.artifact, f"{split}.texts"), int(ends[-1]))
    for first in range(start, stop, READ_AT_ONCE):
        last = min(first + READ_AT_ONCE, stop)
        batch = [texts[ends[row] : ends[row + 1]].tobytes() for row in range(first, last)]
        yield {TEXT: as_rows(batch, length), LABEL: np.array(labels[first:last], np.int64)}


def count_longer(info: SourceInfo, artifact: Path) -> int:
    """Return the number of texts that are longer than in the records, with the features of ``SourceInfo.cut``."""
    import numpy as np

    (length,) = info.features[TEXT].shape
    sizes = [np.diff(_ends(artifact, split, number), prepend=0) for split, number in info.num_examples.items()]
    return sum(int((size > length).sum()) for size in sizes)


def _ends(artifact: Path, split: str, num_examples: int) -> "np.ndarray":
    return mapped_file(artifact / f"{split}.ends", 8 * num_examples).view("<i8")
