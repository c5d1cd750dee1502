"""The base class of sources of user files, which are folders of images, tables of images and texts."""

import logging
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from pipeline.records.keys import SPLITS
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_index import INDEX_NAME, Example, FileIndex, read_index
from pipeline.sources.files import Stamp, quoted, stamps, stamps_of
from pipeline.sources.source import Kind

# Names of splits in lower case.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFiles:
    """Files of a source before they are examined."""

    #: Name of the split of each example, such as "val", and the example.
    rows: Sequence[tuple[str, Example]]
    #: Path → stamp of the files that describe the examples or contain them.
    description_files: Mapping[str, Stamp] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()

    @cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        """Split → its examples."""
        files: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for name, example in self.rows:
            files[split_called(name)].append(example)
        return {split: listed for split, listed in files.items() if listed}

    def stamps(self) -> dict[str, Stamp]:
        """Path → stamp of the files that exist."""
        return {one.path: one.stamp for _, one in self.rows if one.stamp} | {**self.description_files}

    def log_split_names(self) -> None:
        """Log names that stand for another split name."""
        for name in sorted({name for name, _ in self.rows}):
            if name != split_called(name):
                _logger.info("Reading %s as the %s split.", quoted(name), split_called(name))


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

    def folder(self) -> Path:
        """The folder that contains all examples."""
        if not self.path.exists():
            self.refuse(" It does not exist.")
        if self.path.is_dir() != self.is_folder():
            self.refuse(
                " It is a file. For a table of images, set dataset = table."
                if self.is_folder()
                else " It is a folder. For a folder of images, set dataset = folder."
            )
        return self.path if self.is_folder() else self.path.parent

    @abstractmethod
    def _expected(self) -> str:
        """Description of the data in messages."""

    @abstractmethod
    def find_files(self) -> SourceFiles:
        """The files of the source.

        Raises:
            SettingsError: The path contains no such source, or too few examples.
        """

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """Path → stamp of the files that exist, to be compared with ``index``."""
        return self.find_files().stamps()

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each file that has changed. See ``Kind``."""
        if (artifact / INDEX_NAME).exists():
            index = read_index(str(artifact / INDEX_NAME))
            yield from index.changes(self.folder(), self.stamps_now(index), artifact)

    def all_stamps(self) -> dict[str, Stamp]:
        """Path → stamp of the file, or of all files of the folder in the order of their paths.

        Raises:
            SettingsError: A folder cannot be read, or a link leads out of the folder.
        """
        if not self.is_folder():
            return stamps_of(self.folder(), [self.path.name])
        return dict(sorted(stamps(self.folder(), self.refuse).items()))

    def refuse(self, hint: str = "", expected: str = "", setting: str = "path") -> NoReturn:
        """Raise the error for data that cannot be used. See ``setting_error.refuse``."""
        refuse("Source", setting, expected or self._expected(), getattr(self.settings, setting), hint)


def split_called(name: str) -> str:
    """The split with this name. "" if there is none."""
    return _SPLITS.get(name.lower(), "")
