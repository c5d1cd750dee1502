"""The base of sources of the user's own files: a folder of images, a table of images, a text."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.config.refusal import refuse
from pipeline.sources.file_index import INDEX_NAME, FileIndex, FoundFiles, read_index
from pipeline.sources.files import FolderError, Stamp, change, quoted, stamps
from pipeline.sources.source import Kind

# What a split may be called, in lower case.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")

_logger = logging.getLogger(__name__)


def split_called(name: str) -> str:
    """The split that a folder or a value means, "" if none."""
    return _SPLITS.get(name.lower(), "")


class FileSource(Kind):
    """Files at [Source] path. Subclasses find them."""

    @property
    def path(self) -> Path:
        """[Source] path."""
        return Path(self.settings.path).expanduser()

    def name(self) -> str:
        """Name of the folder or file."""
        return self.plain_name(self.path.name if self.path.is_dir() else self.path.stem)

    def plain_name(self, name: str) -> str:
        """A name in letters that file names of shards may have."""
        return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or self.settings.dataset

    def is_at_hand(self) -> bool:
        """Whether the path exists."""
        return self.path.exists()

    def folder(self) -> Path:
        """The folder that paths of examples are below.

        Raises:
            SettingsError: the path is missing, or no such source.
        """
        raise NotImplementedError

    def found_files(self) -> FoundFiles:
        """The files of the source.

        Raises:
            SettingsError: there is no such source at the path, or too little of it.
        """
        raise NotImplementedError

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

    def absolute_path(self) -> Path:
        """The path without links resolved: they may lead anywhere."""
        return Path(os.path.abspath(self.path))


def log_renamed_splits(found: FoundFiles) -> None:
    """Say which names were taken for splits."""
    for name, split in sorted(found.renamed_splits.items()):
        _logger.info("%s is taken for the %s split", quoted(name), split)
