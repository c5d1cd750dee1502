"""Evaluation of a classifier of any examples, with confusions, suspected label errors and calibration."""

import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pipeline.errors import plural
from pipeline.report import drawings
from pipeline.report.blocks import Block, Box, Cell, Chart, Gallery, Links, Picture, Table, Text, numbers, titled, words
from pipeline.report.data import labels as data
from pipeline.report.data.reading import Run
from pipeline.report.formats import MISSING, left_out, number, percent, plain, run_name
from pipeline.report.report import Report
from pipeline.report.sections.texts import readable

# A larger matrix is unreadable, so its most frequent confusions are listed instead.
_MAX_MATRIX = 25
_MAX_CLASSES = 100
_MAX_ON_CARD = 5
_MAX_CALIBRATIONS, _MAX_SUSPECTS = 8, 20
_MAX_MISTAKES, _MAX_CONFUSIONS, _MAX_PER_CONFUSION = 24, 6, 4
_OPEN_LABELS = 12
#: Letters of a file's name.
MAX_NAME = 300


def label_names(facts: data.LabelEvaluation) -> list[str]:
    """Return the labels of an evaluation."""
    return [plain(name, 24) for name in facts.label_names]


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run's evaluation. Correct predictions and label errors are those of the best run."""
    facts: data.LabelEvaluation = run.evaluation
    is_best, predictions = run is report.ordered()[0], report.predictions_of(run)
    shown = getattr(facts, facts.shown_fields[0])
    pngs = report.pictures_of(run).get(facts.shown_fields[0]) or [""] * len(shown)
    pictures = [_picture(facts, item, png, predictions) for item, png in zip(shown, pngs, strict=True)]
    mistakes = [picture for picture in pictures if picture.is_mistake][:_MAX_MISTAKES]
    uncertain = [one for one in pictures if is_best and (one.png or one.text) and not one.is_mistake]
    correct = titled("Correct with the least confidence", Gallery(uncertain))
    if confusion := _matrix(facts, name):
        correct = [Box("pair", [Box("part", titled("Confusion matrix", confusion)), Box("part", correct)])]
    confusions = Box("groups", _confusions(facts, pictures if is_best else ()))
    return [
        *_heading(facts, len(mistakes)),
        Box("pictures", [Gallery(mistakes), *correct, *titled("Largest confusions", confusions)]),
        *(_label_errors(facts, predictions) if predictions and is_best else ()),
        *_label_blocks(report, run, name),
        *titled(f"Augmented: {plain(run.augment, 120)}", Gallery([*_augmented(report, run)])),
    ]


def data_blocks(report: Report, run: Run) -> list[Block]:
    """Return the length of texts, examples of each label, and the number of examples per label and split."""
    facts: data.LabelEvaluation = run.evaluation
    lengths = ""
    if isinstance(facts, data.LabeledTextEvaluation):
        longer = plural(facts.longer_texts, "text")
        lengths = f"The records have the first {number(facts.text_length)} bytes of a text, {longer} longer."
    names, pngs = label_names(facts), report.pictures_of(run).get("examples") or [""] * len(facts.examples)
    examples: dict[int, list[Picture]] = {}
    for item, png in zip(facts.examples, pngs, strict=True):
        name, text = plain(item.name, MAX_NAME) or f"test {facts.noun} {number(item.index)}", readable(item.text)
        if png or text:
            picture = Picture(png, f"{names[item.label]}: {name}", note=name if text else "", text=text)
            examples.setdefault(item.label, []).append(picture)
    groups = Box("groups", [Gallery(pictures, names[label]) for label, pictures in examples.items()])
    counts = {split: labels for split, labels in facts.label_counts.items() if labels}
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:_MAX_CLASSES]
    rows = [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]
    title, columns = "Examples per label and split", [*words("label"), *numbers(*map(plain, counts))]
    table = Table(columns, rows, label=title, style="classes")
    fold = Box("fold", [table], title, is_open=len(rows) <= _OPEN_LABELS)
    return [Text(lengths), *titled(f"Test {facts.noun}s of each label", groups), fold]


def _picture(facts: data.LabelEvaluation, item: data.Shown, png: str, found: data.Predictions | None) -> Picture:
    """Return a shown test example with its prediction, and with a second probability if it is known."""
    names, index, is_mistake = label_names(facts), item.index, item.label != item.predicted
    actual, predicted, share = names[item.label], names[item.predicted], percent(item.confidence)
    name = plain(found.keys[index], MAX_NAME) if found else f"test {facts.noun} {number(index)}"
    if is_mistake:
        title = f"predicted {predicted} ({share}), actual {actual}"
        title += f" ({percent(found.label_probability[index])})" if found else ""
    else:
        second = found and (names[found.second[index]], percent(found.second_probability[index]))
        title = f"predicted and actual {actual} ({share})"
        title += ", second {} ({})".format(*second) if second else ""
    return Picture(png, f"{name}: {title}", title, name, (actual, predicted), is_mistake, readable(item.text))


def _augmented(report: Report, run: Run) -> Iterator[Picture]:
    facts: data.LabelEvaluation = run.evaluation
    pngs = report.pictures_of(run).get("augmented", ())
    for item, png in zip(getattr(facts, "augmented", ()), pngs, strict=False):
        note = f"in epoch {number(item.epoch)}" if item.epoch else "as stored"
        name = f"Training image {number(item.index)}, {label_names(facts)[item.label]}"
        yield Picture(png, f"{name}, {note}", note=note)


def _confusions(facts: data.LabelEvaluation, pictures: Sequence[Picture]) -> list[Gallery]:
    """Return the most frequent confusions with those of the pictures that show them."""
    names, galleries = label_names(facts), []
    for true, predicted, count in _worst_confusions(facts, _MAX_CONFUSIONS):
        labels = names[true], names[predicted]
        shown = [one for one in pictures if one.labels == labels and (one.png or one.text)]
        title = f"{labels[0]} predicted as {labels[1]}: {plural(count, f'test {facts.noun}')}"
        galleries.append(Gallery(shown[:_MAX_PER_CONFUSION], title))
    return galleries


def _heading(facts: data.LabelEvaluation, num_shown: int) -> list[Block]:
    """Return the number of mistakes, and the accuracy without duplicates and near-duplicates if there are any."""
    wrong = sum(sum(row) - row[true] for true, row in enumerate(facts.confusion_matrix))
    shown = f", the {number(num_shown)} most confident first" if num_shown else ""
    kinds = {
        "that the train split does not contain": facts.without_duplicates,
        "that resemble no train image": facts.without_near_duplicates,
    }
    parts = [f"{percent(one.accuracy)} on the {number(one.num_examples)} {kind}" for kind, one in kinds.items() if one]
    note = f"The test accuracy is {percent(facts.accuracy)} on all {facts.noun}s, {', '.join(parts)}."
    return [
        Text(f"Mistakes: {number(wrong)} of {number(facts.num_examples)} test {facts.noun}s{shown}", "heading"),
        Text(note if parts else "", "note"),
    ]


def _label_blocks(report: Report, run: Run, name: str) -> Iterator[Block]:
    """Yield the metrics of each label, the curves of the second of two labels, and the calibration."""
    facts: data.LabelEvaluation = run.evaluation
    columns = [*words("label"), *numbers(f"test {facts.noun}s", "precision", "recall", "F1")]
    classes = Table(columns, _class_rows(facts), label=f"By label: {name}", style="classes")
    yield Box("fold", [classes, Text(left_out(len(facts.classes) - _MAX_CLASSES, "more label"))], "By label")
    if binary := facts.binary:
        yield from _second_label(binary, label_names(facts)[1], name, is_drawn=run in report.requested())
    calibration = f"Calibration: expected error {percent(facts.expected_calibration_error)}"
    points = [(one.confidence, one.accuracy) for one in facts.calibration if None not in (one.confidence, one.accuracy)]
    rows = ["confidence {}, accuracy {}".format(*map(percent, point)) for point in points]
    title = f"Calibration of {run_name(run)} over {number(facts.num_examples)} {facts.noun}s"
    plot = partial(drawings.plot_shares, [("confidence", "accuracy", points)], has_diagonal=True)
    chart = Chart(title, plot, rows, panels=1)
    # Drawings of many runs would dominate the page.
    is_drawn = run in report.requested()[:_MAX_CALIBRATIONS]
    yield Box("fold", [chart], calibration) if is_drawn else Text(calibration)


def _second_label(facts: data.SecondLabel, label: str, name: str, *, is_drawn: bool) -> Iterator[Block]:
    origin = "the greatest F1 on the validation split" if facts.threshold_of else "no validation split to choose it"
    rows = [
        ("ROC AUC", number(facts.roc_auc, 4)),
        ("Average precision", percent(facts.average_precision)),
        (f"Threshold, by {origin}", number(facts.threshold, 3)),
        ("Precision, recall, F1", ", ".join(map(percent, (facts.precision, facts.recall, facts.f1)))),
        ("Accuracy", percent(facts.accuracy, 2)),
    ]
    title = f"{label} against the other label"
    yield from titled(title, Table([*words("metric"), *numbers(label)], rows, f"{title}: {name}", style="classes"))
    if is_drawn and facts.roc and facts.precision_recall:
        curves = [("false positive rate", "recall", facts.roc), ("recall", "precision", facts.precision_recall)]
        plot = partial(drawings.plot_shares, curves)
        yield Chart(f"ROC and precision-recall curve of {label}: {name}", plot, has_table=True)


def _label_errors(facts: data.LabelEvaluation, predictions: data.Predictions) -> list[Block]:
    """Return the suspected label errors, with a file of all of them. Empty without any."""
    labels, fields = facts.label_names, ("labels", "predicted", "probability", "label_probability")
    copies = {conflict.index: (conflict.name, labels[conflict.label]) for conflict in facts.label_conflicts}
    suspects = data.suspected_label_errors(*(getattr(predictions, field) for field in fields), copies).tolist()
    if not suspects:
        return []
    file, lines = io.StringIO(newline=""), []
    writer = csv.writer(file)
    writer.writerow(("key", "label", "label_probability", "predicted", "probability", "copy", "copy_label"))
    for index in suspects:
        pairs = [
            (labels[predictions.labels[index]], predictions.label_probability[index]),
            (labels[predictions.predicted[index]], predictions.probability[index]),
        ]
        key, (copy, copy_label) = predictions.keys[index], copies.get(index, ("", ""))
        writer.writerow((key, *pairs[0], *pairs[1], copy, copy_label))
        note = f"An identical {facts.noun} has the label {plain(copy_label, 24)}: {plain(copy, MAX_NAME)}"
        cells = (f"{plain(name, 24)} ({percent(share)})" for name, share in pairs)
        lines.append((Cell(plain(key, MAX_NAME), [note] if copy else []), *cells))
    columns, shown = words(f"test {facts.noun}", "actual", "predicted"), lines[:_MAX_SUSPECTS]
    table = Table(columns, shown, label="Suspected label errors", style="classes files")
    of_total = f"{number(len(lines))} of {number(facts.num_examples)} test {facts.noun}s"
    return [
        Text(f"Suspected label errors: {of_total}", "heading"),
        Text("Candidates only. Check them by eye. A less accurate model suspects more labels."),
        Links([("label_errors.csv", "label_errors.csv")], {"label_errors.csv": file.getvalue()}),
        Box("fold", [table], f"The {number(len(shown))} most suspect".replace("The 1 ", "The ")),
    ]


def _matrix(facts: data.LabelEvaluation, name: str) -> Table | None:
    """Return the confusion matrix, None for too many labels."""
    names, rows = label_names(facts), []
    if len(names) > _MAX_MATRIX:
        return None
    for true, counts in enumerate(facts.confusion_matrix):
        total = max(1, sum(counts))
        cells = (
            Cell(number(count), share=round(count / total, 3), is_right=predicted == true)
            for predicted, count in enumerate(counts)
        )
        rows.append([names[true], *cells])
    columns = [*words("actual ↓ predicted →"), *numbers(*names)]
    caption = f"Test {facts.noun}s by actual label (rows) and predicted label (columns). The diagonal is correct."
    return Table(columns, rows, label=f"Confusion matrix: {name}", caption=caption, style="matrix")


def _class_rows(facts: data.LabelEvaluation) -> list[tuple[str, ...]]:
    """Return (label, test examples, precision, recall, F1) per label."""
    return [
        (name, number(entry.examples), percent(entry.precision), percent(entry.recall), percent(entry.f1))
        for name, entry in zip(label_names(facts), facts.classes[:_MAX_CLASSES], strict=False)
    ]


def card(run: Run) -> dict[str, Any]:
    """Return the values of the cards."""
    facts: data.LabelEvaluation | None = run.evaluation
    if not facts:
        return {"rows": [("expected calibration error", MISSING)]}
    calibration = ("expected calibration error", percent(facts.expected_calibration_error))
    classes = [(f"{name}: precision, recall, F1", ", ".join(shares)) for name, _, *shares in _class_rows(facts)]
    names, confusions = label_names(facts), _worst_confusions(facts, _MAX_ON_CARD)
    return {
        "labels": [plain(name) for name in facts.label_names],
        "counts": [(plain(split), sum(labels.values())) for split, labels in facts.label_counts.items()],
        "rows": [calibration, *classes],
        "confusions": [(names[true], names[predicted], number(count)) for true, predicted, count in confusions],
    }


def _worst_confusions(facts: data.LabelEvaluation, limit: int) -> Sequence[tuple[int, int, int]]:
    """Return pairs of confused labels as (true, predicted, examples), most frequent first."""
    pairs = [
        (true, predicted, count)
        for true, row in enumerate(facts.confusion_matrix)
        for predicted, count in enumerate(row)
        if count and predicted != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]
