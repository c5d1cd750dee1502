"""The base of sources of the user's own files: a folder of images, a table of images, a text."""

import logging
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.records.keys import SPLITS
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_index import INDEX_NAME, FileIndex, change, read_index
from pipeline.sources.files import FolderError, Stamp, quoted, stamps
from pipeline.sources.source import Kind

# What a split may be called, in lower case.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundFiles:
    """Files that a source names, before they are examined."""

    #: Split → path below the source's folder and label of each example.
    examples: Mapping[str, Sequence[tuple[str, str]]]
    #: Path → stamp of the files that exist.
    stamps: Mapping[str, Stamp]
    label_names: tuple[str, ...] = ()
    #: Names of folders, or values, that mean a split.
    split_names: Iterable[str] = ()


class FileSource(Kind):
    """Files at [Source] path. Subclasses find them."""

    @property
    def path(self) -> Path:
        """[Source] path, absolute. Links are not resolved, as they may lead anywhere."""
        return Path(os.path.abspath(Path(self.settings.path).expanduser()))

    def name(self) -> str:
        """Name of the folder or file, in letters that file names of shards may have."""
        given = Path(self.settings.path).expanduser()
        name = given.name if self.is_folder() else given.stem
        return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or self.settings.dataset

    def is_folder(self) -> bool:
        """Whether the path is that of a folder."""
        return self.path.is_dir()

    def is_at_hand(self) -> bool:
        """Whether the path exists."""
        return self.path.exists()

    def place(self) -> str:
        """[Source] path, absolute."""
        return str(self.path)

    def check(self) -> None:
        """Find the files, by their names alone."""
        self.found_files()

    @abstractmethod
    def folder(self) -> Path:
        """The folder that paths of examples are below.

        Raises:
            SettingsError: the path is missing, or no such source.
        """

    @abstractmethod
    def found_files(self) -> FoundFiles:
        """The files of the source.

        Raises:
            SettingsError: there is no such source at the path, or too little of it.
        """

    def beside(self) -> list[str]:
        """Paths of the files that describe the examples, below the folder."""
        return []

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """Path → stamp of the files that exist, to be compared with ``index``."""
        return self.found_files().stamps

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each file that has changed, see ``Kind``."""
        if not (artifact / INDEX_NAME).exists():
            return
        index, folder = read_index(str(artifact / INDEX_NAME)), self.folder()
        yield from (change(path, "added") for path in self.beside() if path not in index.beside)
        yield from index.changes(folder, self.stamps_now(index), artifact)

    def all_stamps(self) -> dict[str, Stamp]:
        """Path → stamp of all files of the folder.

        Raises:
            SettingsError: a folder cannot be read, or is a link that leads out.
        """
        try:
            return stamps(self.folder())
        except FolderError as error:
            refuse("Source", "path", error.expected, self.settings.path, error.hint)


def by_split(examples: Iterable[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Split → path and label of each example, sorted, from triples that begin with the split."""
    found: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    for split, path, label in sorted(examples):
        found[split].append((path, label))
    return {split: listed for split, listed in found.items() if listed}


def split_called(name: str) -> str:
    """The split that a folder or a value means, "" if none."""
    return _SPLITS.get(name.lower(), "")


def log_split_names(found: FoundFiles) -> None:
    """Log the names that are no split's own."""
    for name in sorted(set(found.split_names)):
        if name != split_called(name):
            _logger.info("Reading %s as the %s split.", quoted(name), split_called(name))
