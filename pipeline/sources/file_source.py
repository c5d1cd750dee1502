"""The base classes of sources of user files, with or without a label per example."""

import inspect
import itertools
import logging
import os
import re
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NoReturn

from pipeline.errors import DamagedArtifactError, message, refuse
from pipeline.records.features import SPLITS
from pipeline.sources.files import (
    INDEX_NAME,
    Examined,
    Example,
    FileIndex,
    IndexedSplit,
    Skipped,
    Stamp,
    digests,
    quoted,
    read_index,
    stamps,
    stamps_of,
)
from pipeline.sources.source import SOURCES, Kind, Location, SourceInfo

#: File in a folder that lists the labels in their order, one per line.
LABELS_NAME = "labels.txt"
#: Text in lower case in cells without a value.
MISSING = {"nan", "na", "n/a", "<na>", "none", "null"}
# Share of the files that may be notes beside the folders of labels.
_MAX_BESIDE = 0.1
# Enough to judge a folder. A notes file or a picture of a chart is a small part of them.
_MAX_FILES, _MIN_SHARE = 1_000, 0.1
# Names of splits in lower case.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFiles:
    """Files of a source before they are examined. ``description_files`` describe the examples or contain them."""

    listed: Sequence[Example]
    description_files: Mapping[str, Stamp] = field(default_factory=dict)
    label_names: tuple[str, ...] = ()
    problem: str = "image_classification"

    @cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        """Split → its examples."""
        files = {split: [one for one in self.listed if split_called(one.split) == split] for split in SPLITS}
        return {split: examples for split, examples in files.items() if examples}

    def log_split_names(self) -> None:
        """Log names that stand for another split name."""
        for name in sorted({one.split for one in self.listed}):
            if name != split_called(name):
                _logger.info("Reading %s as the %s split.", quoted(name), split_called(name))


class FileSource(Kind):
    """Files at [Source] path. Subclasses find them. The first line of their docstrings describes them in messages."""

    #: Name of an example in messages.
    noun: ClassVar[str] = "image"
    #: Whether the path must be a folder. None allows both.
    needs_folder: ClassVar[bool | None] = None

    @property
    def path(self) -> Path:
        """[Source] path as an absolute path. Links are not resolved."""
        return Path(os.path.abspath(Path(self.settings.path).expanduser()))

    def name(self) -> str:
        """Name of the folder or file, as far as TFDS allows it in the names of shards. It begins with a letter."""
        path = Path(self.settings.path).expanduser()
        name = re.sub(r"[^a-z0-9]+", "_", (path.name if self.is_folder() else path.stem).lower()).strip("_")
        return name if name[:1].isalpha() else f"{self.settings.dataset}_{name}".rstrip("_")

    def is_folder(self) -> bool:
        """Whether the path is a folder, even if it is missing."""
        return self.path.is_dir() if self.needs_folder is None else self.needs_folder

    def is_at_hand(self) -> bool:
        """Whether the path exists."""
        return self.path.exists()

    def check(self) -> None:
        """Find the files, by their names alone."""
        self.find_files()

    def folder(self) -> Path:
        """The folder that contains all examples."""
        if not self.path.exists():
            self.refuse(" It does not exist.")
        if self.path.is_dir() != self.is_folder():
            self.refuse(f" It is a {'file' if self.is_folder() else 'folder'}.")
        return self.path if self.is_folder() else self.path.parent

    @abstractmethod
    def find_files(self) -> SourceFiles:
        """The files of the source. SettingsError: the path contains no such source, or too few examples."""

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """Path → stamp of the files that exist, to be compared with ``index``."""
        files = self.find_files()
        return {one.path: one.stamp for one in files.listed if one.stamp} | {**files.description_files}

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each file that has changed. See ``Kind``."""
        if (artifact / INDEX_NAME).exists():
            index = read_index(str(artifact / INDEX_NAME))
            yield from index.changes(self.folder(), self.stamps_now(index), artifact)

    def all_stamps(self) -> dict[str, Stamp]:
        """Path → stamp of the file, or of all files of the folder in the order of their paths.

        SettingsError: a folder cannot be read, or a link to a folder leads out of it.
        """
        if not self.is_folder():
            return stamps_of(self.folder(), [self.path.name])
        return dict(sorted(stamps(self.folder(), self.refuse).items()))

    def refuse(self, hint: str = "", expected: str = "", setting: str = "path") -> NoReturn:
        """Raise the error for data that cannot be used. See ``errors.refuse``."""
        form = inspect.getdoc(type(self)).partition("\n")[0].rstrip(".")
        refuse("Source", setting, expected or form[0].lower() + form[1:], getattr(self.settings, setting), hint)


class LabeledSource(FileSource):
    """Files of examples with labels. Subclasses examine them, so that their number is certain before any is stored."""

    @abstractmethod
    def examine(self, files: SourceFiles, artifact: Path) -> tuple[Mapping[str, Examined], Sequence[Skipped]]:
        """Examine all examples. Returns those that can be used by path, and the others."""

    @abstractmethod
    def facts(self, files: SourceFiles, examined: Sequence[Examined]) -> dict:
        """Fields of ``SourceInfo`` that depend on the kind of examples."""

    def location(self, artifact: Path) -> Location:
        """The folder, the index and the artifact."""
        return Location(folder=str(self.folder()), listing=str(artifact / INDEX_NAME), artifact=str(artifact))

    def find(self, artifact: Path) -> SourceInfo:
        """Examine every example, and write the index."""
        folder, files = self.folder(), self.find_files()
        if self.settings.group_column:
            self._check_groups(files)
        examined, skipped = self.examine(files, artifact)
        files.log_split_names()
        self._judge(skipped, len(files.listed))
        numbers, splits = {name: number for number, name in enumerate(files.label_names)}, {}
        for split, entries in files.examples.items():
            if usable := [example for example in entries if example.path in examined]:
                splits[split] = IndexedSplit(
                    paths=[example.path for example in usable],
                    labels=[numbers.get(example.label, example.label) for example in usable],
                    stamps=[example.stamp for example in usable],
                    digests=[examined[example.path].digest for example in usable],
                    plain=[examined[example.path].plain for example in usable],
                    addresses=[example.address for example in usable if example.address],
                    groups=[example.group for example in usable if example.group],
                )
        if "train" not in splits:
            self.refuse(expected=f"valid {self.noun}s in the train split")
        described = digests(folder, [*files.description_files], None)
        descriptions = {name: (stamp, described[name]) for name, stamp in files.description_files.items()}
        index = FileIndex(splits, skipped, descriptions)
        index.write(artifact)
        num_examples = {split: len(indexed.paths) for split, indexed in splits.items()}
        return SourceInfo(
            dataset=self.name(),
            origin=self.settings.dataset,
            version="1",
            label_names=files.label_names,
            num_examples=num_examples,
            test_share=0.0 if "test" in num_examples else self.settings.test_share,
            bytes_per_example=sum(one.num_bytes for one in examined.values()) // len(examined),
            skipped=dict(sorted(Counter(one.reason for one in skipped).items())),
            digest=index.digest(),
            **self.facts(files, [*examined.values()]),
        )

    def _judge(self, skipped: Sequence[Skipped], total: int) -> None:
        if not skipped:
            return
        settings, count, listed = self.settings, len(skipped), _listed(skipped)
        if settings.on_bad_example == "fail":
            raise DamagedArtifactError(
                f"{settings.path}: {count:,} of {total:,} {self.noun}s cannot be used. Repair or remove them, or skip "
                f"them with --Source-on-bad-example skip, which is [Source] on_bad_example = skip.\n{listed}"
            )
        if count > settings.max_bad_share * total:
            raise DamagedArtifactError(
                f"{settings.path}: {count:,} of {total:,} {self.noun}s cannot be used, more than [Source] "
                f"max_bad_share = {settings.max_bad_share}. Repair or remove them, or increase max_bad_share.\n{listed}"
            )
        _logger.warning("Skipping %s of %s %ss.\n%s", f"{count:,}", f"{total:,}", self.noun, listed)

    def _check_groups(self, files: SourceFiles) -> None:
        """Check that each example has a group, and that no group is in two splits of the source."""
        splits: dict[str, set[str]] = {}
        for example in files.listed:
            splits.setdefault(example.group, set()).add(split_called(example.split))
            if example.group.strip().lower() in {"", *MISSING}:
                self.refuse(f" {quoted(example.path)} has {example.group!r}.", "a value in each row", "group_column")
        if shared := min((group for group, its in splits.items() if len(its) > 1), default=""):
            names = ", ".join(sorted(splits[shared]))
            self.refuse(f" {shared!r} is in {names}.", "a column whose values are in one split each", "group_column")

    def listed_labels(self) -> list[str]:
        """The lines of labels.txt. Empty without that file."""
        listing = self.folder() / LABELS_NAME
        try:
            lines = listing.read_text(encoding="utf-8-sig").splitlines() if listing.is_file() else []
        except (OSError, ValueError) as error:
            self.refuse(f" {LABELS_NAME} is not in UTF-8 ({error}).")
        return [*dict.fromkeys(line.strip() for line in lines if line.strip())]


@message
def _listed(skipped: Sequence[Skipped]) -> str:
    return "\n".join(f"  {quoted(one.path)}: {': '.join(filter(None, (one.reason, one.detail)))}" for one in skipped)


def natural(label: str) -> list[tuple[int, int, str]]:
    """Sort key of labels, which compares numbers by value and other characters as text."""
    parts = re.split(r"(^-?\d+|\d+)", label)
    # Numbers and texts alternate.
    return [(0, int(part), part) if at % 2 else (1, 0, part) for at, part in enumerate(parts) if part]


def checked_labels(names: Sequence[str], path: str, setting: str) -> tuple[str, ...]:
    """Validate the names of the labels, which appear in files, paths and reports.

    SettingsError: there are fewer than two labels, or a name is not allowed.
    """
    composed = [unicodedata.normalize("NFC", label) for label in names]
    times, plain = Counter(composed), {label for label in names if label.isprintable() and label == label.strip()}
    if odd := [one for one, nfc in zip(names, composed, strict=True) if one not in plain or times[nfc] > 1]:
        refuse(
            *("Source", setting, "labels of printable characters that differ in more than the encoding of accents"),
            *(path, f" Rename {', '.join(map(ascii, odd))}. Remove spaces at the start and the end."),
        )
    if len(names) < 2:
        refuse("Source", setting, "at least two labels", path, f" Found: {', '.join(names) or 'none'}.")
    return tuple(names)


def split_called(name: str) -> str:
    """The split with this name. "" if there is none."""
    return _SPLITS.get(name.lower(), "")


def labels_in(paths: Iterable[str]) -> list[str]:
    """Folders of several files that look like labels, because each split has several of them and little beside them."""
    parts = [path.split("/") for path in paths]
    if not all(split_called(one[0]) for one in parts if len(one) > 1):
        parts = [["train", *one] for one in parts]
    if sum(len(one) == 2 for one in parts) > _MAX_BESIDE * len(parts):
        return []
    files = Counter(tuple(one[:2]) for one in parts if len(one) > 2)
    splits, names = {one[0] for one in parts if len(one) > 1}, {name for _, name in files}
    in_all = {name for name in names if all((split, name) in files for split in splits)}
    labels = sorted(name for name in in_all if any(files[split, name] > 1 for split in splits))
    return labels if len(labels) > 1 else []


def kind_at(path: str) -> str:
    """Detect the kind of the data at a path. It is a value of [Source] dataset, such as "folder" or "table".

    SettingsError: the path is missing, or contains none of these kinds.
    """
    top = Path(path).expanduser()
    files = itertools.islice(_files_below(top), _MAX_FILES) if top.is_dir() else [top]
    counts = Counter(next((kind for kind in SOURCES if SOURCES.load(kind).has_file(file)), "") for file in files)
    # Notes are texts, too. They are beside data of every other kind.
    kinds = [kind for kind in SOURCES if kind != "text"] + ["text"]
    kind = next((kind for kind in kinds if counts[kind] > _MIN_SHARE * counts.total()), "")
    if kind == "text" and top.is_dir() and labels_in(os.path.relpath(path, top) for path in _files_below(top)):
        kind = "text_folder"
    is_file = top.is_file()
    if not {"folder": top.is_dir(), "table": is_file, "text_table": is_file, "": False}.get(kind, top.exists()):
        contents = {"folder": "one image", "table": "a table", "text_table": "a table"}.get(kind, "nothing usable")
        refuse(
            *("Source", "path", "a folder of images or UTF-8 text, a table, or another file (docs/how-to/own-data.md)"),
            *(path, f" It contains {contents}." if top.exists() else " It does not exist."),
        )
    return kind


def _files_below(top: Path) -> Iterator[Path]:
    """The files below a folder by name, without hidden ones."""
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))
