"""Sources of images inside other files. [Source] path is one such file, or a folder of them.

An image has the key of the file ``<split>/<label>/<path>`` in a folder of images, so both give the same records. Parts
that the stored path contains are not repeated, and the split is left out if there is only one. If paths are missing or
occur twice, each image is called after its file and its number in this file.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipeline.errors import DamagedArtifactError, PipelineError
from pipeline.sources.file_source import LABELS_NAME, SourceFiles, checked_labels, natural, split_called
from pipeline.sources.files import (
    Address,
    Example,
    FileIndex,
    Stamp,
    UndecodableError,
    is_inside,
    leads_out,
    quoted,
    reading_damaged,
    stamps_of,
)
from pipeline.sources.image_folder import ImageSource

#: Maximum bytes that are read into memory at once, such as an image or a row group of a Parquet file.
MAX_BYTES = 2**30


class ContainerSource(ImageSource):
    """Images inside files. Subclasses list and read them."""

    @abstractmethod
    def rows(self, path: Path, file: str) -> tuple[Sequence[str], list[Example]]:
        """The names of numbered labels, if the file has them, and its images. Any exception means a damaged file.

        ``path`` is absolute, and ``file`` the path below the folder, with which addresses begin. Labels may be numbers,
        and splits None. Paths and groups may be empty.
        """

    @staticmethod
    def read(folder: str, address: Address) -> bytes:
        """Read an image that is a range of a file. The address is its path, and the start and length in bytes."""
        file, start, length = address
        if length > MAX_BYTES:
            raise UndecodableError("too large", f"{length:,} bytes")
        with reading_damaged(), open(os.path.join(folder, file), "rb") as stream:
            stream.seek(start)
            return stream.read(length)

    def column(self, setting: str, candidates: Sequence[str], names: Iterable[str]) -> str:
        """The column that a setting names, or the only candidate if the setting has its default."""
        name = getattr(self.settings, setting)
        if name not in candidates and (len(candidates) != 1 or name not in ("", "label")):
            known = ", ".join(names)
            self.refuse(f" The file has the columns {known}.", f"a column of {self.settings.path}", setting)
        return name if name in candidates else candidates[0]

    def check(self) -> None:
        self._splits()

    def find_files(self) -> SourceFiles:
        splits = self._splits()
        listings = {file: self._listing(file) for file in splits}
        numbered = [*dict.fromkeys(tuple(names) for names, _ in listings.values() if names)]
        if len(numbered) > 1:
            self.refuse(" The files have different lists of labels. Pass one of them.")
        names = numbered[0] if numbered else self.listed_labels()
        rows = [
            (file, number, self._checked(row, (number, file), splits[file], names))
            for file, (_, listed) in listings.items()
            for number, row in enumerate(listed)
        ]
        has_splits = len({split_called(row.split) for *_, row in rows}) > 1
        paths = [_path(row, has_splits=has_splits) for *_, row in rows]
        if "" in paths or len({*paths}) < len(paths):
            paths = [f"{file}/{number}" if self.is_folder() else str(number) for file, number, _ in rows]
        examples = [row._replace(path=path) for path, (*_, row) in zip(paths, rows, strict=True)]
        labels = names or sorted({row.label for row in examples}, key=natural)
        files = SourceFiles(examples, self.stamps_now(), checked_labels(labels, self.settings.path, "path"))
        if "train" not in files.examples:
            self.refuse(" It has no images of the train split.")
        return files

    def stamps_now(self, index: FileIndex | None = None) -> Mapping[str, Stamp]:
        # Unchanged files have the same examples.
        stamps = self.all_stamps()
        if self.is_folder():
            stamps = {path: stamp for path, stamp in stamps.items() if self.has_name(path)}
        return stamps | stamps_of(self.folder(), [LABELS_NAME])

    def _splits(self) -> dict[str, str]:
        """Path of each file below the folder → the split that its name contains."""
        splits = {file: "train" for file in self.stamps_now() if file != LABELS_NAME}
        root = os.path.realpath(self.folder())
        for file in splits if self.is_folder() else ():
            if not is_inside(real := os.path.realpath(os.path.join(root, file)), root):
                self.refuse(leads_out(file, real))
            # As in train-00000-of-00002.parquet. The name of the file counts before its folders.
            words = [word for part in reversed(file.split("/")) for word in re.findall(r"[a-z]+", part.lower())]
            splits[file] = next(filter(None, map(split_called, words)), "train")
        if "train" not in splits.values():
            self.refuse(" It has no file of the train split." if splits else " It contains no such file.")
        return splits

    def _listing(self, file: str) -> tuple[Sequence[str], list[Example]]:
        path = self.folder() / file
        try:
            return self.rows(path, file)
        except PipelineError:
            raise
        # Libraries raise many kinds for damaged files.
        except Exception as error:
            raise DamagedArtifactError(
                f"{quoted(str(path))} cannot be read ({type(error).__name__}: {error}). Replace or remove the file."
            ) from error

    def _checked(self, row: Example, at: tuple[int, str], split: str, names: Sequence[str]) -> Example:
        """The row with the name of its label and of its split, which is that of its file if it has none."""
        label, split = row.label, split if row.split is None else row.split
        if isinstance(label, int) and 0 <= label < (len(names) or label + 1):
            label = names[label] if names else str(label)
        is_label = isinstance(label, str) and label and (not names or label in names)
        if not is_label or not split_called(split):
            self.refuse(f" Image {at[0]} of {quoted(at[1])}: correct the label {label!r} or the split {split!r}.")
        return row._replace(label=label, split=split)


def _path(row: Example, *, has_splits: bool) -> str:
    """The path of an image in a folder of images. "" if it has no stored path."""
    parts = [part for part in re.split(r"[/\\]", row.path) if part not in ("", ".", "..")]
    if len(parts) == 1:
        parts.insert(0, row.label)
    split = split_called(row.split)
    if parts and has_splits and split_called(parts[0]) != split:
        parts.insert(0, split)
    return "/".join(parts)
