"""Texts with a label each, in folders or in a table.

The source's artifact contains the texts of each split in a row, and where each of them ends. They are thus read and
checked only once. A record contains the first bytes of a text in UTF-8, so all records have the same length.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import DamagedArtifactError
from pipeline.records.features import KEY, LABEL, TEXT, Feature
from pipeline.sources.file_index import Example, FileIndex, Skipped, read_index
from pipeline.sources.file_source import LabeledSource, SourceFiles
from pipeline.sources.files import UndecodableError, detect_encoding, read_below
from pipeline.sources.source import Location, SourceInfo

if TYPE_CHECKING:
    import numpy as np

_READ_AT_ONCE = 4_096


@dataclass(frozen=True)
class ExaminedText:
    """A text that can be used. ``digest`` is the hex sha256 of its file or cell."""

    digest: str
    num_bytes: int
    plain: bool = True


class LabeledTexts(LabeledSource):
    """Texts with labels. Subclasses find them."""

    reader = "pipeline.sources.labeled_texts:read_texts"
    noun = "text"
    folder_kind, table_kind = "text_folder", "text_table"

    def content(self, folder: Path, files: SourceFiles, example: Example) -> bytes:
        """Read the file or cell of a text. Raises UndecodableError."""
        return read_below(str(folder), example.path)

    def examine(
        self, folder: Path, files: SourceFiles, artifact: Path | None
    ) -> tuple[Mapping[str, ExaminedText], Sequence[Skipped]]:
        """Check every text, and write the texts of each split to the artifact."""
        # Luigi's process imports this module, but no NumPy.
        import numpy as np

        examined, skipped = {}, []
        for split, examples in files.examples.items():
            ends, end = [], 0
            with ExitStack() as stack:
                output = stack.enter_context(_path(artifact, split, "texts").open("wb")) if artifact else None
                for example in examples:
                    content = b""
                    try:
                        content = self.content(folder, files, example)
                        text = cleaned(content)
                    except UndecodableError as error:
                        digest = hashlib.sha256(content).hexdigest() if content else ""
                        skipped.append(Skipped(example.path, example.stamp, digest, error.reason, error.detail))
                        continue
                    examined[example.path] = ExaminedText(hashlib.sha256(content).hexdigest(), len(text))
                    ends.append(end := end + len(text))
                    if output:
                        output.write(text)
            if artifact:
                np.array(ends, "<i8").tofile(_path(artifact, split, "ends"))
        return examined, skipped

    def describe(self, index: FileIndex, files: SourceFiles, examined: Sequence[ExaminedText]) -> SourceInfo:
        """Describe the texts. Their shape is the number of bytes of the longest."""
        sizes = [text.num_bytes for text in examined]
        features = {
            KEY: Feature((), "string", "utf8"),
            LABEL: Feature((), "int64"),
            TEXT: Feature((max(sizes),), "uint8"),
        }
        return SourceInfo(
            problem="text_classification",
            features=features,
            bytes_per_example=sum(sizes) // len(sizes),
            **self.common_facts(index, files),
        )


def cleaned(content: bytes) -> bytes:
    """Return a text in UTF-8 with line feeds as line ends, without a byte order mark and white space around it.

    Raises:
        UndecodableError: The text has another encoding, is empty or contains zero bytes, which pad the records.
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
    """Read the examples ``start`` to ``stop - 1`` of a split in order. See ``source.read_batches``.

    Raises:
        DamagedArtifactError: The source's artifact is missing or contains other texts.
    """
    import numpy as np

    (length,), labels = info.features[TEXT].shape, read_index(location.listing).splits[split].labels
    path, ends = _path(Path(location.artifact), split, "texts"), [0, *_ends(Path(location.artifact), split)]
    try:
        texts = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError):
        texts = np.empty(0, np.uint8)
    if len(ends) != info.num_examples[split] + 1 or len(texts) != ends[-1]:
        raise DamagedArtifactError(f'{path}: expected the texts of the source. Run "tensorcraft run" again.')
    for first in range(start, stop, _READ_AT_ONCE):
        last = min(first + _READ_AT_ONCE, stop)
        batch = [texts[ends[row] : ends[row + 1]].tobytes() for row in range(first, last)]
        yield {TEXT: as_rows(batch, length), LABEL: np.array(labels[first:last], np.int64)}


def count_longer(info: SourceInfo, artifact: Path) -> int:
    """Return the number of texts that are longer than in the records, with the features of ``SourceInfo.cut``."""
    import numpy as np

    (length,) = info.features[TEXT].shape
    sizes = [np.diff(_ends(artifact, split), prepend=0) for split in info.num_examples]
    return sum(int((size > length).sum()) for size in sizes)


def _ends(artifact: Path, split: str) -> "np.ndarray":
    import numpy as np

    try:
        return np.fromfile(_path(artifact, split, "ends"), "<i8")
    except OSError:
        return np.empty(0, "<i8")


def _path(artifact: Path, split: str, ending: str) -> Path:
    """The file with the texts of a split in the source's artifact, or with their ends."""
    return artifact / f"{split}.{ending}"
