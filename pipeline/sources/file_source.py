"""The base class of sources of user files, which are folders of images, tables of images and texts."""

import logging
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.records.keys import SPLITS
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_index import INDEX_NAME, Example, FileIndex, read_index
from pipeline.sources.files import FolderError, Stamp, quoted, stamps
from pipeline.sources.source import Kind

# Names of splits in lower case.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFiles:
    """Files of a source before they are examined."""

    #: Split → its examples.
    examples: Mapping[str, Sequence[Example]]
    #: Path → stamp of the files that describe the examples or contain them.
    description_files: Mapping[str, Stamp] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    #: Names of folders, or values, that mean a split.
    split_names: Iterable[str] = ()

    def all_examples(self) -> list[Example]:
        """The examples of all splits."""
        return [example for examples in self.examples.values() for example in examples]


class FileSource(Kind):
    """Files at [Source] path. Subclasses find them."""

    @property
    def path(self) -> Path:
        """[Source] path as an absolute path. Links are not resolved."""
        return Path(os.path.abspath(Path(self.settings.path).expanduser()))

    def name(self) -> str:
        """Name of the folder or file, as far as TFDS allows it in the names of shards. It begins with a letter."""
        path = Path(self.settings.path).expanduser()
        name = path.name if self.is_folder() else path.stem
        name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        return name if name[:1].isalpha() else f"{self.settings.dataset}_{name}".rstrip("_")

    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return self.path.is_dir()

    def is_at_hand(self) -> bool:
        """Whether the path exists."""
        return self.path.exists()

    def place(self) -> str:
        """[Source] path, absolute."""
        return str(self.path)

    def check(self) -> None:
        """Find the files, by their names alone."""
        self.find_files()

    @abstractmethod
    def folder(self) -> Path:
        """The folder that contains all examples.

        Raises:
            SettingsError: The path is missing, or is no such source.
        """

    @abstractmethod
    def find_files(self) -> SourceFiles:
        """The files of the source.

        Raises:
            SettingsError: The path contains no such source, or too few examples.
        """

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """Path → stamp of the files that exist, to be compared with ``index``."""
        files = self.find_files()
        return {one.path: one.stamp for one in files.all_examples() if one.stamp} | {**files.description_files}

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each file that has changed. See ``Kind``."""
        if (artifact / INDEX_NAME).exists():
            index = read_index(str(artifact / INDEX_NAME))
            yield from index.changes(self.folder(), self.stamps_now(index), artifact)

    def all_stamps(self) -> dict[str, Stamp]:
        """Path → stamp of all files of the folder.

        Raises:
            SettingsError: A folder cannot be read, or a link leads out of the folder.
        """
        try:
            return stamps(self.folder())
        except FolderError as error:
            refuse("Source", "path", error.expected, self.settings.path, error.hint)


def by_split(examples: Iterable[tuple[str, Example]]) -> dict[str, list[Example]]:
    """Split → its examples in the order of their paths, from pairs of both."""
    files: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for split, example in sorted(examples):
        files[split].append(example)
    return {split: listed for split, listed in files.items() if listed}


def split_called(name: str) -> str:
    """The split with this name. "" if there is none."""
    return _SPLITS.get(name.lower(), "")


def log_split_names(files: SourceFiles) -> None:
    """Log names that stand for another split name."""
    for name in sorted(set(files.split_names)):
        if name != split_called(name):
            _logger.info("Reading %s as the %s split.", quoted(name), split_called(name))
