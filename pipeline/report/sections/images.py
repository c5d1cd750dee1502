"""The evaluation of an image classifier: mistakes, confusions, labels and calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

from pipeline.report import drawings
from pipeline.report.blocks import (
    Block,
    Box,
    Cell,
    Chart,
    Gallery,
    Picture,
    Table,
    Text,
    figures,
    titled,
    words,
)
from pipeline.report.data.reading import worst_confusions
from pipeline.report.formats import Run, left_out, number, percent, plain, run_name
from pipeline.report.report import Report

# The cells of a larger matrix cannot be read: its worst are listed.
_MAX_MATRIX = 25
_MAX_CONFUSIONS = 10
_MAX_CLASSES = 100
_MOST_ON_CARD = 5


def label_names(facts: Mapping[str, Any]) -> list[str]:
    """The labels of an evaluation."""
    return [plain(name, 24) for name in facts["label_names"]]


def evaluation_blocks(report: Report, run: Run, name: str, with_drawings: bool) -> list[Block]:
    """The blocks of a run's evaluation."""
    facts, pictures = run["evaluation"], report.pictures_of(run)
    wrong = sum(sum(row) - row[true] for true, row in enumerate(facts["confusion_matrix"]))
    shown = f", {number(len(facts['mistakes']))} of them shown" if wrong > len(facts["mistakes"]) else ""
    mistakes = f"Mistakes: {number(wrong)} of {number(facts['num_examples'])} test images{shown}"
    columns = [*words("label"), *figures("test images", "precision", "recall", "F1")]
    classes = Table(columns, class_rows(facts), label=f"By label: {name}", style="classes")
    more = Text(left_out(len(facts["classes"]) - _MAX_CLASSES, "more label"))
    calibration = Chart(
        f"Calibration of {run_name(run)} over {number(facts['num_examples'])} images",
        partial(drawings.plot_calibration, facts["calibration"]),
        [
            f"confidence {percent(one['confidence'])}: right {percent(one['accuracy'])}"
            for one in facts["calibration"]
            if one["accuracy"] is not None
        ],
    )
    tested, augmented = _galleries(facts, pictures)
    return [
        *(titled(f"{mistakes}, the most confident first", tested) if facts["mistakes"] else []),
        Box("pair", [Box("part", _confusions(facts, name)), Box("part", titled("By label", classes, more))]),
        Text(f"Calibration: expected error {percent(facts['expected_calibration_error'])}", "heading"),
        *([calibration] if with_drawings else []),
        *titled(f"Augmented: {plain(run['augment'], 120)}", augmented),
    ]


def _galleries(facts: Mapping[str, Any], pictures: Mapping[str, Sequence[str]]) -> tuple[Gallery, Gallery]:
    """The mistakes with the first correct test image of each label, and the augmented training images."""
    names, mistakes, right, augmented = label_names(facts), [], {}, []
    # A mistake without a picture is listed too.
    for one, png in zip_longest(facts["mistakes"], pictures.get("mistakes", ())):
        index, label, predicted = number(one["index"]), names[one["label"]], names[one["predicted"]]
        alternative, note = f"Test image {index}: {label}, predicted as {predicted}", f"is {label}, test image {index}"
        mistakes.append(Picture(png or "", alternative, predicted, percent(one["confidence"]), note, is_mistake=True))
    for one, png in zip(facts["examples"], pictures.get("examples", ()), strict=False):
        index, label = number(one["index"]), names[one["label"]]
        picture = Picture(
            png, f"Test image {index}: {label}, rightly predicted", label, "", f"right, test image {index}"
        )
        if one["predicted"] == one["label"]:
            right.setdefault(one["label"], picture)
    for one, png in zip(facts["augmented"], pictures.get("augmented", ()), strict=False):
        seen = f"in epoch {number(one['epoch'])}" if one["epoch"] else "as stored"
        alternative = f"Training image {number(one['index'])}, {names[one['label']]}, {seen}"
        augmented.append(Picture(png, alternative, note=seen))
    return Gallery([*mistakes, *right.values()]), Gallery(augmented)


def _confusions(facts: Mapping[str, Any], name: str) -> list[Block]:
    names, matrix = label_names(facts), facts["confusion_matrix"]
    if len(names) > _MAX_MATRIX:
        columns, title = [*words("true label"), *figures("predicted label", "test images")], "Most frequent confusions"
        return titled(title, Table(columns, confusion_rows(facts), label=f"{title}: {name}", style="classes"))
    rows = []
    for true, (label, counts) in enumerate(zip(names, matrix, strict=True)):
        shares = [round(count / max(1, sum(counts)), 3) for count in counts]
        cells = [Cell(number(count), share=share) for count, share in zip(counts, shares, strict=True)]
        cells[true] = replace(cells[true], is_right=True)
        rows.append([label, *cells])
    columns = [*words("true ↓ predicted →"), *figures(*names)]
    caption = "Test images by true label (rows) and predicted label (columns); the diagonal is correct."
    table = Table(columns, rows, label=f"Confusion matrix: {name}", caption=caption, style="matrix")
    return titled("Confusion matrix", table)


def confusion_rows(facts: Mapping[str, Any], limit: int = _MAX_CONFUSIONS) -> list[tuple[str, str, str]]:
    """The most frequent confusions: (true label, predicted label, test images)."""
    names = label_names(facts)
    return [(names[true], names[given], number(count)) for true, given, count in worst_confusions(facts, limit)]


def class_rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """(label, test images, precision, recall, F1)."""
    shares = ("precision", "recall", "f1")
    return [
        (name, number(entry["examples"]), *(percent(entry[share]) for share in shares))
        for name, entry in zip(label_names(facts), facts["classes"][:_MAX_CLASSES], strict=False)
    ]


def card(run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the cards."""
    counts = {plain(split): sum(labels.values()) for split, labels in facts.get("label_counts", {}).items()}
    calibration = ("expected calibration error", percent(facts.get("expected_calibration_error")))
    classes = class_rows(facts) if facts else []
    return {
        "labels": [plain(name) for name in facts.get("label_names", ())],
        "counts": [(split, count, count) for split, count in counts.items()],
        "rows": [calibration, *((f"{name}: precision, recall, F1", ", ".join(shares)) for name, _, *shares in classes)],
        "confusions": confusion_rows(facts, _MOST_ON_CARD) if facts else [],
    }
