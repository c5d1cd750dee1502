"""A text, which is a file or the concatenated files of a folder in the order of their paths.

The source's artifact contains the text as tokens of one byte, in a file per split. The text is thus decoded only once.
An example has ``sequence_length`` + 1 tokens. A model predicts all its tokens except the first. The last token of an
example is the first of the next one, so each token is predicted once. Remaining tokens at the end are left out.
"""

import codecs
import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import DamagedArtifactError
from pipeline.records.features import KEY, Feature, content_name
from pipeline.records.keys import SPLITS
from pipeline.sources.file_index import Example, FileIndex, IndexedSplit
from pipeline.sources.file_source import FileSource, SourceFiles, labels_in, split_called
from pipeline.sources.files import UndecodableError, detect_encoding, first_bytes, is_in, quoted, read_below
from pipeline.sources.source import Location, SourceInfo

if TYPE_CHECKING:
    import numpy as np

#: Feature spec of a text, with tokens of its vocabulary and a key.
FEATURES = {KEY: Feature((), "string", "utf8"), "tokens": Feature((None,), "uint8")}

#: Number of texts that are read at once.
READ_AT_ONCE = 4_096

_logger = logging.getLogger(__name__)


class Text(FileSource):
    """A text file in UTF-8 or a folder of text files."""

    reader = "pipeline.sources.text:read_tokens"

    @classmethod
    def has_file(cls, path: Path) -> bool:
        """Whether the first bytes of a file are a text in UTF-8."""
        begin = first_bytes(path)
        with contextlib.suppress(UnicodeDecodeError):
            # The last character may be cut off.
            codecs.getincrementaldecoder("utf-8")().decode(begin)
            return bool(begin) and b"\0" not in begin
        return False

    def find(self, artifact: Path) -> SourceInfo:
        """Read the text, and write its tokens and the index."""
        folder, files = self.folder(), self.find_files()
        files.log_split_names()
        splits, texts = {}, {}
        for split, entries in files.examples.items():
            contents = {one.path: self._content(folder, one.path) for one in entries}
            texts[split] = "".join(self._decoded(path, content) for path, content in contents.items())
            if not texts[split]:
                self.refuse(f" The {split} split is empty.")
            splits[split] = IndexedSplit(
                paths=[*contents],
                stamps=[one.stamp for one in entries],
                digests=[hashlib.sha256(content).hexdigest() for content in contents.values()],
            )
        facts = written_tokens(texts, artifact, test_share=self.settings.test_share)
        index = FileIndex(splits, [], {})
        index.write(artifact)
        return SourceInfo(dataset=self.name(), origin="text", version="1", digest=index.digest(), **facts)

    def find_files(self) -> SourceFiles:
        """The files of each split. A file, or a folder without folders of splits, is the train split."""
        stamps_by_path = self.all_stamps()
        if not stamps_by_path:
            self.refuse(" It contains no files.")
        tops = {path.partition("/")[0] for path in stamps_by_path if "/" in path}
        has_splits = bool(tops) and all(map(split_called, tops))
        if has_splits and (labels := labels_in(stamps_by_path)):
            self.refuse(
                f" The folders {', '.join(map(quoted, labels[:5]))} look like labels, which a text does not have. To "
                "learn the labels, set dataset = text_folder. Pass one of these folders to join its texts."
            )
        # Beside folders of splits a file is a note.
        files = SourceFiles(
            [
                Example(path, stamp=stamp, split=path.partition("/")[0] if has_splits else "train")
                for path, stamp in stamps_by_path.items()
                if "/" in path or not has_splits
            ]
        )
        if "train" not in files.examples:
            self.refuse(expected="a folder train beside the folders of other splits")
        return files

    def _content(self, folder: Path, path: str) -> bytes:
        # A file that is named may be a link to anywhere.
        at = (str(folder), path) if self.is_folder() else os.path.split(os.path.realpath(folder / path))
        try:
            return read_below(*at)
        except UndecodableError as error:
            self.refuse(f" {quoted(path)}: {error}.")

    def _decoded(self, path: str, content: bytes) -> str:
        """The text of a file without a byte order mark and with line feeds as line ends."""
        if encoding := detect_encoding(content):
            self.refuse(f" {quoted(path)}: {is_in(encoding)}")
        if zeros := content.count(0):
            self.refuse(f" {quoted(path)} has {zeros:,} zero bytes, so it is damaged or not a text.")
        text = content.decode("utf-8-sig")
        if carriage_returns := text.count("\r"):
            _logger.info("%s: converting %s carriage returns to line feeds.", quoted(path), f"{carriage_returns:,}")
        return text.replace("\r\n", "\n").replace("\r", "\n")


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


def read_tokens(
    info: SourceInfo, location: Location, form: object, split: str, start: int, stop: int
) -> Iterator[dict[str, "np.ndarray"]]:
    """Read a range of a split. See ``source.read_batches``."""
    import numpy as np

    name = content_name(info.features)
    (size,) = info.features[name].shape
    tokens = mapped_file(Path(location.artifact, f"{split}.tokens"), stop * (size - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, size)[:: size - 1]
    for first in range(start, stop, READ_AT_ONCE):
        yield {name: np.ascontiguousarray(windows[first : min(first + READ_AT_ONCE, stop)])}


def mapped_file(path: Path, num_bytes: int) -> "np.ndarray":
    """Map a file of the source's artifact into memory, uint8. DamagedArtifactError: it is shorter, or missing."""
    import numpy as np

    found = path.stat().st_size if path.exists() else 0
    if found < num_bytes:
        raise DamagedArtifactError(f'{path}: expected {num_bytes:,} bytes, got {found:,}. Run "tensorcraft run" again.')
    # An empty file cannot be mapped.
    return np.memmap(path, np.uint8, mode="r") if found else np.empty(0, np.uint8)


def text_digest(info: SourceInfo, artifact: Path) -> str:
    """Hex sha256 of the concatenated splits of a text in UTF-8."""
    import numpy as np

    from pipeline.records.vocabulary import Vocabulary

    vocabulary, digest = Vocabulary(info.label_names), hashlib.sha256()
    for split in info.num_examples:
        tokens = np.fromfile(artifact / f"{split}.tokens", np.uint8)
        digest.update(tokens.tobytes() if vocabulary.is_bytes else vocabulary.decode(tokens).encode())
    return digest.hexdigest()
