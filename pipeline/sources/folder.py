"""Folder: a folder of images, a folder for each label (one kind of source: **source** → records → shards → …).

``<path>/<label>/…`` or ``<path>/{train,test,validation}/<label>/…``. Folders below a label's belong to it. Files beside
the labels' folders (a licence, notes) are none of the examples, nor are files whose ending is never that of an image.
"""

import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.config.refusal import refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words

LABELS_NAME = "labels.txt"
# What a split may be called, in small letters.
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS |= dict.fromkeys(("validation", "val", "valid", "dev"), "validation")
# Names that may mean one split or the other.
_LIKE_SPLITS = {"eval", "holdout"}
# What operating systems leave, and what lies beside images as notes, tables and programs.
_NEVER_IMAGES = {"thumbs.db", "desktop.ini"}
_NEVER_ENDINGS = {".txt", ".md", ".pdf", ".doc", ".docx", ".html", ".htm", ".xml", ".json", ".yaml", ".yml", ".ini"}
_NEVER_ENDINGS |= {".csv", ".tsv", ".xls", ".xlsx", ".parquet", ".db", ".log", ".py", ".ipynb", ".npy", ".mat", ".zip"}
_NEVER_ENDINGS |= {".tar", ".gz"}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """Split → (path below the source's folder, label's name) of each example; ``label_names`` in their order.

    ``taken_for``: what a split is called, where it is called otherwise → the split. ``has_splits``: whether the folder
    holds one for each split. ``ignored``: how many files are none by their names.
    """

    examples: dict[str, list[tuple[str, str]]]
    label_names: tuple[str, ...]
    taken_for: Mapping[str, str] = field(default_factory=dict)
    has_splits: bool = False
    ignored: int = 0


def split_called(name: str) -> str:
    """The split that a folder or a value means, "" where it means none."""
    return _SPLITS.get(name.lower(), "")


def may_be_image(path: str) -> bool:
    """Whether a file can be an image by its name, which says little of most files."""
    name = path.rpartition("/")[2].lower()
    return name not in _NEVER_IMAGES and os.path.splitext(name)[1] not in _NEVER_ENDINGS


def natural(label: str) -> list[tuple[int, int, str]]:
    """What labels are sorted by: numbers in them by their value, all else as text."""
    parts = re.split(r"(^-?\d+|\d+)", label)
    # The numbers stand between the texts.
    return [(0, int(part), part) if at % 2 else (1, 0, part) for at, part in enumerate(parts) if part]


def find_examples(folder: Path, paths: Iterable[str]) -> Found:
    """The examples among the files of a folder.

    Args:
        folder: [Source] path.
        paths: of all its files, below it.

    Raises:
        SettingsError: there are none, or of one label alone, or labels.txt lists others; a label's name cannot be;
            folders of splits lie beside others.
    """
    parts = {path: path.split("/") for path in paths}
    first = {one[0] for one in parts.values() if len(one) > 1}
    is_deep = any(len(one) > 2 for one in parts.values())
    splits = {name: split_called(name) for name in first}
    has_splits = bool(first) and all(splits.values()) and is_deep
    if first and all(splits.values()) and "train" in splits.values() and not is_deep:
        # Else a network would learn to tell the splits apart.
        refuse("Source", "path", words.A_FOLDER, str(folder), words.no_label_folders(len(parts)))
    other = {name for name in first if not splits[name]}
    like_splits = {name for name in first if name.lower() in _LIKE_SPLITS} | {name for name in first if splits[name]}
    if is_deep and not has_splits and "train" in splits.values() and len(like_splits) > 1:
        # Else the splits would be taken for labels.
        refuse("Source", "path", words.A_SPLIT, str(folder), words.folders(sorted(other)))
    examples: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(parts):
        one = parts[path]
        split, rest = (splits[one[0]], one[1:]) if has_splits else ("train", one)
        if len(rest) > 1:
            examples.setdefault(split, []).append((path, rest[0]))
    if "train" not in examples:
        hint = words.NO_TRAIN if examples else words.no_label_folders(len(parts))
        refuse("Source", "path", words.A_FOLDER, str(folder), hint)
    found = sorted({label for listed in examples.values() for _, label in listed}, key=natural)
    taken_for = {name: split for name, split in splits.items() if has_splits and name != split}
    in_order = {split: examples[split] for split in SPLITS if split in examples}
    return Found(in_order, _in_order(folder, found), taken_for, has_splits)


def warn_of_empty_folders(folder: Path, found: Found) -> None:
    """Say so where a folder that could be a label's holds no image: it is no label."""
    tops = {path.partition("/")[0] for entries in found.examples.values() for path, _ in entries}
    places = [folder / top for top in sorted(tops)] if found.has_splits else [folder]
    for place in places:
        for path in sorted(place.iterdir()):
            if path.is_dir() and not path.name.startswith(".") and path.name not in found.label_names:
                _logger.warning(words.empty_folder(str(path)))


def checked_labels(names: Sequence[str], path: str, name: str) -> tuple[str, ...]:
    """The labels' names, if they can be.

    A label is a line of a file, a part of a path and a word of a report.

    Args:
        names: of all labels, in order.
        path: [Source] path.
        name: of the setting that says where they are from.

    Raises:
        SettingsError: there is one alone, or a name cannot be.
    """
    # Of the space alone: any other character that has no looks cannot be told from another.
    if odd := [label for label in names if not label.isprintable() or "/" in label or label != label.strip()]:
        refuse("Source", name, words.A_LABEL, path, words.labels(odd))
    composed = Counter(unicodedata.normalize("NFC", label) for label in names)
    if alike := [label for label in names if composed[unicodedata.normalize("NFC", label)] > 1]:
        refuse("Source", name, words.LABELS_APART, path, words.labels(alike))
    if len(names) < 2:
        refuse("Source", name, "at least two labels", path, f" Found: {', '.join(names) or 'none'}.")
    return tuple(names)


def _in_order(folder: Path, found: list[str]) -> tuple[str, ...]:
    """The labels as labels.txt lists them, else sorted."""
    listing = folder / LABELS_NAME
    if listing.is_file():
        try:
            listed = [line.strip() for line in listing.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            refuse("Source", "path", words.A_FOLDER, str(folder), words.not_text(LABELS_NAME, error))
        if missing := [label for label in found if label not in listed]:
            expected = words.a_line_each(LABELS_NAME)
            refuse("Source", "path", expected, str(folder), f" Missing: {', '.join(map(ascii, missing))}.")
        found = list(dict.fromkeys(listed))
    return checked_labels(found, str(folder), "path")
