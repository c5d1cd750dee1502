"""Folder: a folder of images, a folder for each label (one kind of source: **source** → records → shards → …).

``<path>/<label>/…`` or ``<path>/{train,test,validation}/<label>/…``. Folders below a label's belong to it. Files beside
the labels' folders (a licence, notes) are none of the examples.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words

LABELS_NAME = "labels.txt"
# Names that say a folder beside train is a split too.
_LIKE_TRAIN = {"train", "training"}
_LIKE_SPLITS = {"test", "testing", "validation", "val", "valid", "dev", "eval", "holdout"}


@dataclass(frozen=True)
class Found:
    """Split → (path below the source's folder, label's name) of each example; ``label_names`` in their order."""

    examples: dict[str, list[tuple[str, str]]]
    label_names: tuple[str, ...]


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
    has_splits = bool(first) and first <= set(SPLITS) and is_deep
    called = {name.lower() for name in first}
    if is_deep and not has_splits and called & _LIKE_TRAIN and called & _LIKE_SPLITS:
        # Else the splits would be taken for labels.
        refuse("Source", "path", words.A_SPLIT, str(folder), words.folders(sorted(first - set(SPLITS))))
    examples: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(parts):
        one = parts[path]
        split, rest = (one[0], one[1:]) if has_splits else ("train", one)
        if len(rest) > 1:
            examples.setdefault(split, []).append((path, rest[0]))
    if "train" not in examples:
        refuse("Source", "path", words.A_FOLDER, str(folder), " It holds no such file.")
    found = sorted({label for listed in examples.values() for _, label in listed})
    return Found({split: examples[split] for split in SPLITS if split in examples}, _in_order(folder, found))


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
