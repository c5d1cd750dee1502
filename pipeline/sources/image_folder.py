"""A folder of images: ``<path>/<label>/…`` or ``<path>/{train,test,validation}/<label>/…``.

Folders below that of a label belong to it. Files beside the labels' folders (a licence, notes) are no examples, nor are
files with an ending that no image has.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from pipeline.config.refusal import refuse
from pipeline.errors import message
from pipeline.records.keys import SPLITS
from pipeline.sources.file_index import FileIndex, FoundFiles
from pipeline.sources.file_source import split_called
from pipeline.sources.files import Stamp, quoted
from pipeline.sources.image_source import ImageSource, checked_labels, natural
from pipeline.sources.source import SourceInfo

LABELS_NAME = "labels.txt"
# Names that may mean one split or the other.
_LIKE_SPLITS = {"eval", "holdout"}
# Files of operating systems, and notes, tables and programs beside images.
_NEVER_IMAGES = {"thumbs.db", "desktop.ini"}
_NEVER_ENDINGS = {".txt", ".md", ".pdf", ".doc", ".docx", ".html", ".htm", ".xml", ".json", ".yaml", ".yml", ".ini"}
_NEVER_ENDINGS |= {".csv", ".tsv", ".xls", ".xlsx", ".parquet", ".db", ".log", ".py", ".ipynb", ".npy", ".mat", ".zip"}
_NEVER_ENDINGS |= {".tar", ".gz"}

_logger = logging.getLogger(__name__)


class ImageFolder(ImageSource):
    """A folder with a folder for each label."""

    def name(self) -> str:
        """Name of the folder, which may have a dot and may be missing."""
        return self.plain_name(self.path.name)

    def folder(self) -> Path:
        """The folder."""
        path = self.absolute_path()
        if not path.is_dir():
            _refuse(
                self.settings.path,
                " It is a file: a table of images is dataset = table." if path.exists() else " It does not exist.",
            )
        return path

    def beside(self) -> list[str]:
        """The list of labels, if there is one."""
        return [LABELS_NAME] if (self.folder() / LABELS_NAME).is_file() else []

    def find(self, artifact: Path | None) -> SourceInfo:
        """Warn of files that no label or name makes examples, and decode the others."""
        found = self.found_files()
        # Those beside the labels' folders are expected there.
        if ignored := sum("/" in path and not _may_be_image(path) for path in self.all_stamps()):
            _logger.info(
                f"{ignored:,} files whose names are never those of images are ignored, such as .txt, .csv and Thumbs.db"
            )
        for path in self._empty_folders(found):
            _logger.warning("%s holds no image: it is no label", quoted(str(path)))
        return super().find(artifact)

    def found_files(self) -> FoundFiles:
        """The images below folders of labels."""
        present = self._images()
        examples, renamed = _examples(self.settings.path, present)
        labels = sorted({label for listed in examples.values() for _, label in listed}, key=natural)
        stamps = {path: present[path] for listed in examples.values() for path, _ in listed}
        return FoundFiles(examples, stamps, self._in_order(labels), renamed)

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """As long as the same files are in folders, they are the same examples."""
        present = self._images()
        if {path for path in present if "/" in path} == index.stamps.keys():
            return {path: present[path] for path in index.stamps}
        return super().stamps_now(index)

    def _images(self) -> dict[str, Stamp]:
        return {path: stamp for path, stamp in self.all_stamps().items() if _may_be_image(path)}

    def _empty_folders(self, found: FoundFiles) -> list[Path]:
        """Folders at the place of labels' folders that contain no image."""
        paths = [(path, label) for listed in found.examples.values() for path, label in listed]
        # With folders of splits the label is the second part of a path.
        tops = {path.partition("/")[0] for path, label in paths if not path.startswith(f"{label}/")}
        places = [self.folder() / top for top in sorted(tops)] or [self.folder()]
        below = [path for place in places for path in sorted(place.iterdir()) if path.is_dir()]
        return [path for path in below if path.name[0] != "." and path.name not in found.label_names]

    def _in_order(self, found: list[str]) -> tuple[str, ...]:
        """The labels as labels.txt lists them, else sorted."""
        listing, path = self.folder() / LABELS_NAME, self.settings.path
        if listing.is_file():
            try:
                lines = listing.read_text(encoding="utf-8-sig").splitlines()
            except (OSError, ValueError) as error:
                _refuse(path, f" {LABELS_NAME} is no text in UTF-8: {error}.")
            listed = [line.strip() for line in lines if line.strip()]
            if missing := [label for label in found if label not in listed]:
                refuse(
                    *("Source", "path", f"in its {LABELS_NAME} a line for each folder of images", path),
                    f" Missing: {', '.join(map(ascii, missing))}.",
                )
            found = list(dict.fromkeys(listed))
        return checked_labels(found, path, "path")


def _refuse(path: str, hint: str) -> NoReturn:
    refuse("Source", "path", "a folder of images, <label>/<image> or train/<label>/<image>", path, hint)


def _may_be_image(path: str) -> bool:
    """Whether a file can be an image by its name, which says little of most files."""
    name = path.rpartition("/")[2].lower()
    return name not in _NEVER_IMAGES and os.path.splitext(name)[1] not in _NEVER_ENDINGS


def _examples(path: str, images: Iterable[str]) -> tuple[dict[str, list[tuple[str, str]]], dict[str, str]]:
    """Split → path and label of each example, and the folders that mean a split under another name."""
    parts = {image: image.split("/") for image in images}
    first = {one[0] for one in parts.values() if len(one) > 1}
    is_deep = any(len(one) > 2 for one in parts.values())
    splits = {name: split_called(name) for name in first}
    has_splits = bool(first) and all(splits.values()) and is_deep
    if first and all(splits.values()) and "train" in splits.values() and not is_deep:
        # Else a model would learn to tell the splits apart.
        _refuse(path, _no_label_folders(len(parts)))
    like_splits = {name for name in first if splits[name] or name.lower() in _LIKE_SPLITS}
    if is_deep and not has_splits and "train" in splits.values() and len(like_splits) > 1:
        # Else the splits would be taken for labels.
        names = ", ".join(map(ascii, sorted(name for name in first if not splits[name])))
        refuse(
            *("Source", "path", "no other folders beside train than validation and test", path),
            f" Found {names}: rename what is meant to be a split, move the rest elsewhere.",
        )
    examples: dict[str, list[tuple[str, str]]] = {}
    for image in sorted(parts):
        one = parts[image]
        split, rest = (splits[one[0]], one[1:]) if has_splits else ("train", one)
        if len(rest) > 1:
            examples.setdefault(split, []).append((image, rest[0]))
    if "train" not in examples:
        _refuse(path, " It has no train split." if examples else _no_label_folders(len(parts)))
    renamed = {name: split for name, split in splits.items() if has_splits and name != split}
    return {split: examples[split] for split in SPLITS if split in examples}, renamed


@message
def _no_label_folders(images: int) -> str:
    if not images:
        return " It holds no image."
    return f" Found {images:,} image{'' if images == 1 else 's'} but no label folders."
