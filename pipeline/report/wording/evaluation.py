"""Evaluation: labels, confusions, mistakes and examples of a run's records, as rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.facts.predictions import worst_confusions
from pipeline.report.wording.formats import number, percent, plain

# A larger matrix is no longer read cell by cell: its worst cells are listed instead.
_MAX_MATRIX = 25
_MAX_CONFUSIONS = 10
MAX_CLASSES = 100


def label_names(facts: Mapping[str, Any]) -> list[str]:
    """The labels of a run's evaluation, as plain text."""
    return [plain(name, 24) for name in facts["label_names"]]


def confusion_rows(facts: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
    """The confusion matrix: (true label, cells), a cell its count and its share of the row; empty for many labels."""
    names = label_names(facts)
    if len(names) > _MAX_MATRIX:
        return []
    return [
        (name, [(number(count), round(count / max(1, sum(row)), 3)) for count in row])
        for name, row in zip(names, facts["confusion_matrix"], strict=True)
    ]


def confusion_lines(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is most often taken for what: (true label, predicted label, images)."""
    names = label_names(facts)
    return [
        (names[true], names[given], number(count)) for true, given, count in worst_confusions(facts, _MAX_CONFUSIONS)
    ]


def class_rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each label with its images, precision, recall and F1."""
    shares = ("precision", "recall", "f1")
    return [
        (name, number(entry["examples"]), *(percent(entry[share]) for share in shares))
        for name, entry in zip(label_names(facts), facts["classes"][:MAX_CLASSES], strict=False)
    ]


def mistake_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[dict[str, str]]:
    """The most confident mistakes: label, prediction, confidence, index; the picture, a PNG in base64, may be empty."""
    names = label_names(facts)
    return [
        {
            "label": names[one["label"]],
            "predicted": names[one["predicted"]],
            "confidence": percent(one["confidence"]),
            "index": number(one["index"]),
            "picture": pictures[place] if place < len(pictures) else "",
        }
        for place, one in enumerate(facts["mistakes"])
    ]


def mistakes_heading(facts: Mapping[str, Any]) -> str:
    """How many test images are wrong, and in what order they are shown."""
    wrong = sum(count for true, row in enumerate(facts["confusion_matrix"]) for given, count in enumerate(row)
                if given != true)  # fmt: skip
    shown = f", {number(len(facts['mistakes']))} of them shown" if wrong > len(facts["mistakes"]) else ""
    return f"Mistakes: {number(wrong)} of {number(facts['num_examples'])} test images{shown}, the most confident first"


def right_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[dict[str, str]]:
    """Of each label the first test image of those shown that is right: label, index and picture."""
    names, found = label_names(facts), {}
    for one, picture in zip(facts["examples"], pictures, strict=False):
        if one["predicted"] == one["label"]:
            right = {"label": names[one["label"]], "index": number(one["index"]), "picture": picture}
            found.setdefault(one["label"], right)
    return list(found.values())


def example_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[tuple[str, str]]:
    """A few examples of the records: (label, a PNG in base64)."""
    names = label_names(facts)
    return [(names[one["label"]], picture) for one, picture in zip(facts["examples"], pictures, strict=False)]


def augmented_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[tuple[str, str, str]]:
    """What augmentation makes of a few training images: (which, how it is seen, a PNG in base64)."""
    names = label_names(facts)
    return [
        (
            f"Training image {number(one['index'])}, {names[one['label']]}",
            f"in epoch {number(one['epoch'])}" if one["epoch"] else "as stored",
            picture,
        )
        for one, picture in zip(facts["augmented"], pictures, strict=False)
    ]


def count_rows(counts: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Examples by label: (label, its examples in each split)."""
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:MAX_CLASSES]
    return [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]
