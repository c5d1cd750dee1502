"""Folder: a folder of images, a folder for each label (one kind of source: **source** → records → shards → …).

``<path>/<label>/…`` or ``<path>/{train,test,validation}/<label>/…``. Folders below a label's belong to it. Files beside
the labels' folders (a licence, notes) are none of the examples.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.config import refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words

LABELS_NAME = "labels.txt"


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
        SettingsError: there are none, or of one label alone, or labels.txt lists others.
    """
    parts = {path: PurePosixPath(path).parts for path in paths}
    first = {one[0] for one in parts.values() if len(one) > 1}
    has_splits = bool(first) and first <= set(SPLITS) and any(len(one) > 2 for one in parts.values())
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


def _in_order(folder: Path, found: list[str]) -> tuple[str, ...]:
    """The labels as labels.txt lists them, else sorted."""
    listing = folder / LABELS_NAME
    if listing.is_file():
        listed = [line.strip() for line in listing.read_text(encoding="utf-8").splitlines() if line.strip()]
        if missing := [label for label in found if label not in listed]:
            refuse(
                "Source", "path", f"in {listing} a line for each folder of images", str(folder), f" Missing: {missing}."
            )
        found = list(dict.fromkeys(listed))
    if len(found) < 2:
        refuse("Source", "path", "at least two labels, each a folder of images", str(folder), f" Found: {found}.")
    return tuple(found)
