"""Findings: properties of a dataset that make its metrics doubtful, and the warnings about them.

Images are equal if their 64-bit fingerprints are. Among a million images two different ones have equal fingerprints in
one of thirty million datasets.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
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


def find(
    examples: Mapping[str, np.ndarray],
    names: Mapping[str, Sequence[str]],
    label_names: Sequence[str],
    label_counts: Mapping[str, Mapping[str, int]],
    folder: Path,
) -> dict:
    """The findings for the manifest. Writes duplicates.csv into ``folder`` if there are duplicates.

    Args:
        examples: by split, in the order of the records; ``summary.NOTED`` (examples,).
        names: by split, the path or key of each example of the source.
        label_names: empty if examples have no labels.
        label_counts: split → label or token → number.
        folder: of the records.

    Returns:
        ``never_trained_on``, ``few_examples``: label or token → number. ``imbalance``: name and number of train's
        largest and smallest label, or null. ``two_labels``: number of images under several labels. ``duplicates``:
        number of images beyond the first of each. ``test_in_train``: places in test of images that train has too.
    """
    train, test = label_counts["train"], label_counts.get("test", {})
    groups = _equal(examples)
    # One row per example. Equal images have the same number.
    rows = [
        (number, split, place, label_names[one["label"]] if label_names else "", names[split][one["index"]])
        for number, group in enumerate(groups)
        for split, place in group
        for one in (examples[split][place],)
    ]
    if rows:
        write_rows(folder / DUPLICATES_NAME, ("image", "split", "place", "label", "name"), rows)
    total = {name: sum(counts[name] for counts in label_counts.values()) for name in label_names}
    return {
        "few_examples": {name: count for name, count in total.items() if count < FEW_EXAMPLES},
        "imbalance": _imbalance(train) if label_names else None,
        "two_labels": sum(len({examples[split][place]["label"] for split, place in group}) > 1 for group in groups),
        "duplicates": sum(len(group) - 1 for group in groups),
        "test_in_train": sorted(
            place
            for group in groups
            if any(split == "train" for split, _ in group)
            for split, place in group
            if split == "test"
        ),
        "never_trained_on": {name: count for name, count in test.items() if count and not train.get(name)},
    }


def _equal(examples: Mapping[str, np.ndarray]) -> list[list[tuple[str, int]]]:
    """Split and place of the examples of each group of equal ones, in the order of splits and places."""
    fingerprints = np.concatenate([one["fingerprint"] for one in examples.values()])
    _, group, sizes = np.unique(fingerprints, return_inverse=True, return_counts=True)
    splits, starts = [*examples], np.cumsum([0, *map(len, examples.values())])
    groups: dict[int, list[tuple[str, int]]] = {}
    for index in np.flatnonzero(sizes[group] > 1):
        number = np.searchsorted(starts, index, side="right") - 1
        groups.setdefault(group[index], []).append((splits[number], int(index - starts[number])))
    return [*groups.values()]


def _imbalance(train: Mapping[str, int]) -> dict | None:
    largest, smallest = (choose(train.items(), key=lambda item: item[1]) for choose in (max, min))
    if largest[1] < HEAVY_IMBALANCE * smallest[1] or not largest[1]:
        return None
    return {"largest": list(largest), "smallest": list(smallest)}


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write a CSV file. The name of an image file may not be UTF-8."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        csv.writer(file).writerows([header, *rows])


def warnings(findings: Mapping, num_test: int, *, has_labels: bool = True) -> list[list[str]]:
    """[headline, explanation] of each finding. Examples without labels are sequences of a text."""
    kinds = ("never_trained_on", "few_examples", "imbalance", "two_labels", "test_in_train")
    found = [(kind, findings[kind]) for kind in kinds if findings[kind]]
    return [_warning(kind, of_kind, num_test, has_labels).split("\n") for kind, of_kind in found]


@message
def _warning(kind: str, found: Any, num_test: int, has_labels: bool) -> str:
    which = "Which: duplicates.csv beside the records."
    if kind == "never_trained_on":
        # Control characters as string literals.
        counts = {name if name.isprintable() and name.strip() else ascii(name): n for name, n in found.items()}
        headline = f"{'Labels' if has_labels else 'Characters'} of the test split that train never has"
        return f"{headline}\n{_listed(counts)}: no network can know them."
    if kind == "few_examples":
        return f"Labels with fewer than ten examples\n{_listed(found)}: too few to learn from or to judge by."
    if kind == "imbalance":
        (large, most), (small, least) = found["largest"], found["smallest"]
        reason = f"The train split has {most:,} of {large} and {least:,} of {small}, ten times as many or more"
        return f"Very unequal labels\n{reason}: accuracy says little of the small ones."
    if kind == "two_labels":
        images = "1 image is" if found == 1 else f"{found:,} images are"
        return f"The same image under two labels\n{images} listed under more than one label. {which}"
    share = f"{len(found):,} of {num_test:,} test"
    if not has_labels:
        share = f"{share} sequences are in the train split too, letter for letter"
        return f"Test sequences in the train split\n{share}. {which}"
    share = f"{share} images are in the train split too, with the same stored bytes"
    return f"Test images in the train split\n{share}. The evaluation gives the accuracy without them. {which}"


@message
def _listed(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_LISTED])
    return listed + (f" and {len(counts) - _MAX_LISTED:,} more" if len(counts) > _MAX_LISTED else "")
