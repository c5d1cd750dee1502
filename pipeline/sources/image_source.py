"""The base class of folders and tables of images.

Every image is checked, so that the number and positions of the examples are certain before a record is written.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import DamagedArtifactError, message
from pipeline.records.features import image_spec
from pipeline.settings.data import FULL_RANGE, SourceSettings
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_index import INDEX_NAME, Address, Example, FileIndex, IndexedSplit, Skipped
from pipeline.sources.file_source import FileSource, SourceFiles
from pipeline.sources.files import digests, quoted, read_below
from pipeline.sources.source import Location, SourceInfo

if TYPE_CHECKING:
    from pipeline.sources.image_files import Picture

#: File in a folder of images that lists the labels in their order, one per line.
LABELS_NAME = "labels.txt"
# Share of the 65,536 values. Images of 10, 12 and 14 bits use a 64th to a quarter of them.
_LITTLE_OF_THE_RANGE = 0.25

_logger = logging.getLogger(__name__)


class ImageSource(FileSource):
    """Image files. Subclasses find the files and their labels."""

    reader = "pipeline.sources.image_reading:read_images"
    #: Reads the file of an image, from the folder and the example's address, or its path if it has none.
    read: ClassVar[Callable[[str, Address | str], bytes]] = staticmethod(read_below)

    def location(self, artifact: Path) -> Location:
        """The folder and the index."""
        return Location(folder=str(self.folder()), listing=str(artifact / INDEX_NAME))

    def find(self, artifact: Path | None) -> SourceInfo:
        """Check every image, and write the index."""
        # Luigi's process imports this module, but no Pillow.
        from pipeline.sources.image_files import examine

        folder, files = self.folder(), self.find_files()
        pictures, skipped = examine(self.read, folder, [example for _, example in files.rows])
        files.log_split_names()
        _judge(self.settings, skipped, len(files.rows))
        splits = {split: _indexed(entries, pictures, files) for split, entries in files.examples.items()}
        splits = {split: indexed for split, indexed in splits.items() if indexed.paths}
        if "train" not in splits:
            self.refuse(expected="valid images in the train split")
        described = digests(folder, [*files.description_files], None)
        descriptions = {name: (stamp, described[name]) for name, stamp in files.description_files.items()}
        index = FileIndex(splits, skipped, descriptions)
        if artifact:
            index.write(artifact)
        return self._info(index, files.label_names, [*pictures.values()])

    def ordered_labels(self, labels: Iterable[str]) -> tuple[str, ...]:
        """The names of the labels in the order of labels.txt, or in their natural order without that file."""
        names = sorted(set(labels), key=natural)
        if listed := self.listed_labels():
            if missing := [label for label in names if label not in listed]:
                self.refuse(f" Missing: {', '.join(map(ascii, missing))}.", f"one line per label in {LABELS_NAME}")
            names = listed
        return checked_labels(names, self.settings.path, "path")

    def listed_labels(self) -> list[str]:
        """The lines of labels.txt. Empty without that file."""
        listing = self.folder() / LABELS_NAME
        try:
            lines = listing.read_text(encoding="utf-8-sig").splitlines() if listing.is_file() else []
        except (OSError, ValueError) as error:
            self.refuse(f" {LABELS_NAME} is not in UTF-8 ({error}).")
        return [*dict.fromkeys(line.strip() for line in lines if line.strip())]

    def _info(self, index: FileIndex, label_names: tuple[str, ...], pictures: Sequence["Picture"]) -> SourceInfo:
        encodings = {picture.encoding for picture in pictures}
        shapes = {(picture.height, picture.width) for picture in pictures}
        sides = sorted(min(picture.height, picture.width) for picture in pictures)
        sizes = next(iter(shapes)) if len(shapes) == 1 else (None, None)
        channels = 1 if all(picture.gray for picture in pictures) else 3
        num_examples = {split: len(indexed.paths) for split, indexed in index.splits.items()}
        return SourceInfo(
            dataset=self.name(),
            origin=self.settings.dataset,
            version="1",
            features=image_spec((*sizes, channels), encodings.pop() if len(encodings) == 1 else "image"),
            label_names=label_names,
            num_examples=num_examples,
            test_share=0.0 if "test" in num_examples else self.settings.test_share,
            bytes_per_example=sum(picture.num_bytes for picture in pictures) // len(pictures),
            shorter_sides=(sides[0], sides[len(sides) // 2], sides[-1]),
            value_range=_value_range(self.settings, [picture.levels for picture in pictures if picture.levels]),
            skipped=dict(sorted(Counter(one.reason for one in index.skipped).items())),
            digest=index.digest(),
        )


def _indexed(examples: Sequence[Example], pictures: Mapping[str, "Picture"], files: SourceFiles) -> IndexedSplit:
    numbers = {name: number for number, name in enumerate(files.label_names)}
    usable = [example for example in examples if example.path in pictures]
    return IndexedSplit(
        paths=[example.path for example in usable],
        labels=[numbers[example.label] for example in usable],
        stamps=[example.stamp for example in usable],
        digests=[pictures[example.path].digest for example in usable],
        plain=[pictures[example.path].plain for example in usable],
        addresses=[example.address for example in usable if example.address],
    )


def _judge(settings: SourceSettings, skipped: Sequence[Skipped], total: int) -> None:
    if not skipped:
        return
    listed, share = _listed(skipped), settings.max_bad_share
    if settings.on_bad_example == "fail":
        raise DamagedArtifactError(
            f"{settings.path}: {len(skipped):,} of {total:,} images cannot be used. Repair or remove them, or skip "
            f"them with --Source-on-bad-example skip, which is [Source] on_bad_example = skip.\n{listed}"
        )
    if len(skipped) > share * total:
        raise DamagedArtifactError(
            f"{settings.path}: {len(skipped):,} of {total:,} images cannot be used, more than [Source] max_bad_share = "
            f"{share}. Repair or remove them, or increase max_bad_share.\n{listed}"
        )
    _logger.warning("Skipping %s of %s images.\n%s", f"{len(skipped):,}", f"{total:,}", listed)


@message
def _listed(skipped: Sequence[Skipped]) -> str:
    return "\n".join(f"  {quoted(one.path)}: {': '.join(filter(None, (one.reason, one.detail)))}" for one in skipped)


def _value_range(settings: SourceSettings, levels: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The 16-bit values that become black and white, from the value range of each 16-bit image."""
    if not levels:
        return FULL_RANGE
    low, high = min(low for low, _ in levels), max(high for _, high in levels)
    if settings.value_range == "data":
        return (low, high) if low < high else FULL_RANGE
    if settings.value_range != "full":
        low, high = map(int, settings.value_range.split(","))
        return low, high
    share = (high - low) / FULL_RANGE[1]
    if share <= _LITTLE_OF_THE_RANGE:
        _logger.warning(
            f"{len(levels):,} images of 16 bits have values from {low:,} to {high:,}, {100 * share:.1f}% of the range. "
            "They look dark or flat. Set [Source] value_range to data, or to the values of black and white such as "
            "0, 4095."
        )
    return FULL_RANGE


def natural(label: str) -> list[tuple[int, int, str]]:
    """Sort key of labels, which compares numbers by value and other characters as text."""
    parts = re.split(r"(^-?\d+|\d+)", label)
    # Numbers and texts alternate.
    return [(0, int(part), part) if at % 2 else (1, 0, part) for at, part in enumerate(parts) if part]


def checked_labels(names: Sequence[str], path: str, setting: str) -> tuple[str, ...]:
    """Validate the names of the labels, which appear in files, paths and reports.

    Raises:
        SettingsError: There are fewer than two labels, or a name is not allowed.
    """
    # Of the space alone: any other character that has no looks cannot be told from another.
    if odd := [label for label in names if not label.isprintable() or label != label.strip()]:
        refuse("Source", setting, "labels of one or more printable characters", path, _rename(odd))
    composed = Counter(unicodedata.normalize("NFC", label) for label in names)
    if alike := [label for label in names if composed[unicodedata.normalize("NFC", label)] > 1]:
        refuse(
            *("Source", setting, "labels that differ in more than the encoding of accents", path, _rename(alike)),
        )
    if len(names) < 2:
        refuse("Source", setting, "at least two labels", path, f" Found: {', '.join(names) or 'none'}.")
    return tuple(names)


@message
def _rename(names: Sequence[str]) -> str:
    spaces = any(name != name.strip() for name in names)
    space = " Remove spaces at the start and the end." if spaces else ""
    return f" Rename {', '.join(map(ascii, names))}.{space}"
