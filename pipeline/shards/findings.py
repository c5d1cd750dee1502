"""Findings: what of a dataset should be known before its figures are believed (the shards' aid).

Few examples of a label, very unequal labels, labels or characters that only the test split has, the same image under
two labels, and test images that train holds too. Two images are the same where their stored bytes are; that is told by
a fingerprint of 64 bits, of which two among a million agree by chance in one of thirty million datasets. Which examples
are the same is listed beside the shards.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DUPLICATES_NAME = "duplicates.csv"
# Of a label with fewer neither the network learns much nor the test split says much.
FEW_EXAMPLES = 10
# The largest label of train has so many times the examples of the smallest.
HEAVY_IMBALANCE = 10


@dataclass(frozen=True)
class Noted:
    """The examples of all splits of the records, in the order of splits and of records.

    ``splits``: their names in order; ``split``: int (examples,), the place of each example's split among them;
    ``place``: int (examples,), its place in its split; ``label``: int (examples,); ``fingerprint``: uint64 (examples,);
    ``names``: what gives each example's by its index: its path where it is a file, else its key.
    """

    splits: Sequence[str]
    split: np.ndarray
    place: np.ndarray
    label: np.ndarray
    fingerprint: np.ndarray
    names: Sequence[str]


def find(noted: Noted, label_names: Sequence[str], folder: Path) -> dict:
    """The findings as the manifest holds them; leaves duplicates.csv in ``folder`` where there are any.

    Returns:
        ``few_examples``: label → examples in all splits, of labels with fewer than ten; ``imbalance``: name and count
        of train's largest and smallest label, null where they are alike; ``two_labels``: images under more than one
        label; ``duplicates``: images, beyond the first of each, that are there more than once; ``test_in_train``:
        places in the test split of examples whose image train holds too. Without ``label_names`` the first three say
        nothing.
    """
    # Equal images stand side by side; of equal ones in the order of splits and places.
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
    """Labels, or tokens to be predicted, that the test split has and train has not, and how often test has them.

    Args:
        label_counts: split → label or token → its number there.
    """
    train = label_counts["train"]
    return {name: count for name, count in label_counts.get("test", {}).items() if count and not train.get(name)}


def _by_label(noted: Noted, label_names: Sequence[str]) -> dict:
    if not label_names:
        return {"few_examples": {}, "imbalance": None}
    train = np.bincount(noted.label[noted.split == noted.splits.index("train")], minlength=len(label_names))
    total = np.bincount(noted.label, minlength=len(label_names))
    return {
        "few_examples": {label_names[at]: int(total[at]) for at in np.flatnonzero(total < FEW_EXAMPLES)},
        "imbalance": _imbalance(train, label_names),
    }


def _imbalance(train: np.ndarray, label_names: Sequence[str]) -> dict | None:
    large, small = int(train.argmax()), int(train.argmin())
    if train[large] < HEAVY_IMBALANCE * train[small] or not train[large]:
        return None
    return {
        "largest": [label_names[large], int(train[large])],
        "smallest": [label_names[small], int(train[small])],
    }


def _test_in_train(groups: Sequence[np.ndarray], noted: Noted) -> list[int]:
    if "test" not in noted.splits:
        return []
    train, test = noted.splits.index("train"), noted.splits.index("test")
    both = [group for group in groups if {train, test} <= set(noted.split[group].tolist())]
    return sorted(int(noted.place[at]) for group in both for at in group if noted.split[at] == test)


def _list(groups: Sequence[np.ndarray], noted: Noted, label_names: Sequence[str], folder: Path) -> None:
    """One row for each example, the same number of ``image`` for those that are the same."""
    with (folder / DUPLICATES_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "split", "place", "label", "name"))
        for number, group in enumerate(groups):
            for at in group.tolist():
                split, label = noted.splits[noted.split[at]], label_names[noted.label[at]] if label_names else ""
                rows.writerow((number, split, noted.place[at], label, noted.names[at]))
