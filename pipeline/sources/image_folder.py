"""Sources of images, and folders with the layout ``<path>/<label>/…`` or ``<path>/{train,test,validation}/<label>/…``.

Subfolders of a label's folder have the same label. Files next to the labels' folders are no examples. With a
``label_pattern``, the labels are in the names of the files.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import plural
from pipeline.records.features import Feature, image_spec
from pipeline.settings.data import FULL_RANGE, SourceSettings
from pipeline.sources.file_source import LABELS_NAME, LabeledSource, SourceFiles, checked_labels, natural, split_called
from pipeline.sources.files import Address, Example, Skipped, Stamp, first_bytes, quoted, read_below

if TYPE_CHECKING:
    from pipeline.sources.image_files import Picture

# Names that may stand for either split.
_LIKE_SPLITS = {"eval", "holdout"}
# Endings of notes, tables and programs beside images.
_NEVER_ENDINGS = "txt|md|pdf|docx?|html?|xml|json|ya?ml|ini|csv|tsv|xlsx?|parquet|db|log|py|ipynb|npy|mat|zip|tar|gz"
# First bytes of JPEG, PNG, GIF, WebP and TIFF files.
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"II*\0", b"MM\0*")

# Type of the values of an example with a value per label or target, by problem.
_VECTOR_TYPES = {"multi_label": "uint8", "regression": "float32"}
# Share of the 65,536 values. Images of 10, 12 and 14 bits use a 64th to a quarter of them.
_LITTLE_OF_THE_RANGE = 0.25

_logger = logging.getLogger(__name__)


class ImageSource(LabeledSource):
    """Image files. Subclasses find the files and their labels."""

    reader = "pipeline.sources.reading:read_images"
    #: Reads the file of an image, from the folder and the example's address, or its path if it has none.
    read: ClassVar[Callable[[str, Address | str], bytes]] = staticmethod(read_below)

    def examine(self, files: SourceFiles, artifact: Path) -> tuple[Mapping[str, "Picture"], Sequence[Skipped]]:
        # Luigi's process imports this module, but no Pillow.
        from pipeline.sources.image_files import examine

        return examine(self.read, self.folder(), files.listed)

    def facts(self, files: SourceFiles, examined: Sequence["Picture"]) -> dict:
        encodings = {picture.encoding for picture in examined}
        sizes = [(picture.height, picture.width) for picture in examined]
        sides = sorted(map(min, sizes))
        channels = 1 if all(picture.gray for picture in examined) else 3
        shape = (*(sizes[0] if len({*sizes}) == 1 else (None, None)), channels)
        vector_type = _VECTOR_TYPES.get(files.problem)
        label = Feature((len(files.label_names),), vector_type) if vector_type else Feature((), "int64")
        return {
            "features": image_spec(shape, encodings.pop() if len(encodings) == 1 else "image", label),
            "problem": files.problem,
            "shorter_sides": (sides[0], sides[len(sides) // 2], sides[-1]),
            "side_counts": Counter(str(side.bit_length() - 1) for side in sides),
            "value_range": _value_range(self.settings, [picture.levels for picture in examined if picture.levels]),
        }


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


class LabelFolders(LabeledSource):
    """A folder with a subfolder per label."""

    needs_folder = True
    #: Regular expression for the names of files that are no examples, in lower case. Here those of operating systems.
    other_files: ClassVar[str] = r"thumbs\.db|desktop\.ini"

    def find_files(self) -> SourceFiles:
        stamps = self.all_stamps()
        others = {path for path in stamps if re.fullmatch(self.other_files, path.rpartition("/")[2].lower())}
        examples = self._examples({path: stamp for path, stamp in stamps.items() if path not in others})
        # Files beside the folders of the labels are expected.
        if ignored := sorted(path for path in others if "/" in path):
            count = plural(len(ignored), "file")
            _logger.info("Ignoring %s whose names are not those of %ss, such as %s.", count, self.noun, ignored[0])
        used = {str(folder) for example in examples for folder in PurePosixPath(example.path).parents}
        level = "*/*" if all(split_called(example.path.partition("/")[0]) for example in examples) else "*"
        for folder in [] if self.settings.label_pattern else sorted(self.folder().glob(level)):
            name = folder.relative_to(self.folder()).as_posix()
            if folder.is_dir() and not folder.name.startswith(".") and name not in used:
                _logger.warning("Folder %s contains no %s, so it is not a label.", quoted(name), self.noun)
        names, listed = sorted({example.label for example in examples}, key=natural), self.listed_labels()
        if listed and (missing := [label for label in names if label not in listed]):
            self.refuse(f" Missing: {', '.join(map(ascii, missing))}.", f"one line per label in {LABELS_NAME}")
        labels = checked_labels(listed or names, self.settings.path, "path")
        return SourceFiles(examples, {path: stamp for path, stamp in stamps.items() if path == LABELS_NAME}, labels)

    def _examples(self, files: Mapping[str, Stamp]) -> list[Example]:
        parts, pattern = {file: file.split("/") for file in files}, self.settings.label_pattern
        label_folders = 0 if pattern else 1
        splits = {name: split_called(name) for name in {one[0] for one in parts.values() if len(one) > 1}}
        is_deep, has_train = any(len(one) > 1 + label_folders for one in parts.values()), "train" in splits.values()
        # A label may be called train.
        extra = sorted(name for name, split in splits.items() if not split)
        like_splits = [name for name, split in splits.items() if split or name.lower() in _LIKE_SPLITS]
        if has_train and is_deep and extra and len(like_splits) > 1:
            self.refuse(
                f" Found {', '.join(map(ascii, extra))}. Rename folders of splits, and move other folders elsewhere.",
                "only the folders train, validation and test",
            )
        has_splits = is_deep and not extra
        parts = {file: one for file, one in parts.items() if len(one) > label_folders + has_splits}
        if not parts or (has_train and not is_deep and not extra):
            self.refuse(
                f" Found {plural(len(files), self.noun)} but no label folders. For a folder of one label, pass the "
                f"folder above it. For labels in the names of the {self.noun}s, set label_pattern."
            )
        if has_splits and not has_train:
            self.refuse(" It has no train split.")
        labels = {file: one[has_splits] for file, one in parts.items()}
        if pattern:
            matches = {file: re.search(pattern, parts[file][-1]) for file in parts}
            if bad := sorted(file for file, match in matches.items() if not (match and match["label"])):
                self.refuse(
                    f" It finds none in {plural(len(bad), 'name')}, such as {quoted(bad[0])}.",
                    *(f"a pattern that finds a label in the name of each {self.noun}", "label_pattern"),
                )
            labels = {file: match["label"] for file, match in matches.items()}
        return [
            Example(file, labels[file], files[file], split=one[0] if has_splits else "train")
            for file, one in parts.items()
        ]


class ImageFolder(LabelFolders, ImageSource):
    """A folder of images, <label>/<image> or train/<label>/<image>.

    Files whose extension is never that of an image are no examples.
    """

    file_names = r".*\.(jpe?g|png|bmp|gif|webp|tiff?|avif|hei[cf])"
    other_files = rf"{LabelFolders.other_files}|.*\.({_NEVER_ENDINGS})"

    @classmethod
    def has_file(cls, path: Path) -> bool:
        return super().has_file(path) or first_bytes(path).startswith(_SIGNATURES)
