"""Findings: properties of a dataset that make its metrics doubtful, and the warnings about them.

They are few examples of a label, very unequal labels, labels or characters that only the test split has, an image under
two labels, and test images in the train split. Images are equal if their 64-bit fingerprints are. Among a million
images two different ones have equal fingerprints in one of thirty million datasets.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import message

DUPLICATES_NAME = "duplicates.csv"
# With fewer examples of a label a model learns little, and the test split shows little.
FEW_EXAMPLES = 10
# Ratio of the largest to the smallest label of train.
HEAVY_IMBALANCE = 10
_MAX_LISTED = 10


@dataclass(frozen=True)
class Noted:
    """The examples of all splits of the records, in the order of splits and of records.

    ``splits``: their names. ``split``, ``place``, ``label``: int (examples,), the number of the split, the place in it,
    the label. ``fingerprint``: uint64 (examples,). ``name_of``: index → path or key of the example.
    """

    splits: Sequence[str]
    split: np.ndarray
    place: np.ndarray
    label: np.ndarray
    fingerprint: np.ndarray
    name_of: Callable[[int], str]


def find(noted: Noted, label_names: Sequence[str], folder: Path) -> dict:
    """The findings for the manifest. Writes duplicates.csv into ``folder`` if there are duplicates.

    Returns:
        ``few_examples``: label → examples in all splits, of labels with fewer than ten. ``imbalance``: name and count
        of train's largest and smallest label, or null. ``two_labels``: number of images under several labels.
        ``duplicates``: number of images beyond the first of each. ``test_in_train``: places in the test split of
        images that train contains too. Without ``label_names`` the first three are empty.
    """
    # Equal images become neighbors, in the order of splits and places.
    order = np.argsort(noted.fingerprint, kind="stable")
    starts = np.flatnonzero(np.diff(noted.fingerprint[order], prepend=~noted.fingerprint[order[:1]]))
    sizes = np.diff(starts, append=len(order))
    groups = [order[start : start + size] for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True)]
    groups.sort(key=lambda group: group[0])
    two_labels = [group for group in groups if len(np.unique(noted.label[group])) > 1]
    if groups:
        _list(groups, noted, label_names, folder)
    return {
        **_by_label(noted, label_names),
        "two_labels": len(two_labels),
        "duplicates": sum(len(group) - 1 for group in groups),
        "test_in_train": _test_in_train(groups, noted),
    }


def never_trained_on(label_counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Labels or tokens of the test split that train lacks, with their number.

    ``label_counts``: split → label or token → number.
    """
    train = label_counts["train"]
    return {name: count for name, count in label_counts.get("test", {}).items() if count and not train.get(name)}


def _by_label(noted: Noted, names: Sequence[str]) -> dict:
    if not names:
        return {"few_examples": {}, "imbalance": None}
    total = np.bincount(noted.label, minlength=len(names))
    few = {names[at]: int(total[at]) for at in np.flatnonzero(total < FEW_EXAMPLES)}
    train = np.bincount(noted.label[noted.split == noted.splits.index("train")], minlength=len(names)).tolist()
    most, least = max(train), min(train)
    if most < HEAVY_IMBALANCE * least or not most:
        return {"few_examples": few, "imbalance": None}
    unequal = {"largest": [names[train.index(most)], most], "smallest": [names[train.index(least)], least]}
    return {"few_examples": few, "imbalance": unequal}


def _test_in_train(groups: Sequence[np.ndarray], noted: Noted) -> list[int]:
    if "test" not in noted.splits:
        return []
    train, test = noted.splits.index("train"), noted.splits.index("test")
    both = [group for group in groups if {train, test} <= set(noted.split[group].tolist())]
    return sorted(int(noted.place[at]) for group in both for at in group if noted.split[at] == test)


def _list(groups: Sequence[np.ndarray], noted: Noted, label_names: Sequence[str], folder: Path) -> None:
    """One row per example. Equal images have the same number."""
    with (folder / DUPLICATES_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "split", "place", "label", "name"))
        for number, group in enumerate(groups):
            for at in group.tolist():
                split, label = noted.splits[noted.split[at]], label_names[noted.label[at]] if label_names else ""
                rows.writerow((number, split, noted.place[at], label, noted.name_of(at)))


def warnings(findings: Mapping, num_test: int, *, has_labels: bool = True) -> list[tuple[str, str]]:
    """(headline, explanation) of each finding. Examples without labels are sequences of a text."""
    return [
        (_headline(kind, has_labels), _explanation(kind, findings[kind], num_test, has_labels))
        for kind in ("never_trained_on", "few_examples", "imbalance", "two_labels", "test_in_train")
        if findings[kind]
    ]


@message
def _headline(kind: str, has_labels: bool) -> str:
    return {
        "never_trained_on": f"{'Labels' if has_labels else 'Characters'} of the test split that train never has",
        "few_examples": "Labels with fewer than ten examples",
        "imbalance": "Very unequal labels",
        "two_labels": "The same image under two labels",
        "test_in_train": f"Test {'images' if has_labels else 'sequences'} in the train split",
    }[kind]


@message
def _explanation(kind: str, found: Any, num_test: int, has_labels: bool) -> str:
    which = "Which: duplicates.csv beside the records."
    if kind == "never_trained_on":
        # Control characters as string literals.
        counts = {name if name.isprintable() and name.strip() else ascii(name): n for name, n in found.items()}
        return f"{_listed(counts)}: no network can know them."
    if kind == "few_examples":
        return f"{_listed(found)}: too few to learn from or to judge by."
    if kind == "imbalance":
        (large, most), (small, least) = found["largest"], found["smallest"]
        reason = f"The train split has {most:,} of {large} and {least:,} of {small}, ten times as many or more"
        return f"{reason}: accuracy says little of the small ones."
    if kind == "two_labels":
        images = "1 image is" if found == 1 else f"{found:,} images are"
        return f"{images} listed under more than one label. {which}"
    if not has_labels:
        return f"{len(found):,} of {num_test:,} test sequences are in the train split too, letter for letter. {which}"
    share = f"{len(found):,} of {num_test:,} test images are in the train split too, with the same stored bytes"
    return f"{share}. The evaluation gives the accuracy without them. {which}"


@message
def _listed(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_LISTED])
    return listed + (f" and {len(counts) - _MAX_LISTED:,} more" if len(counts) > _MAX_LISTED else "")
