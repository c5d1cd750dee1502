"""The evaluation of a run: of images or of a text. What surprises a model has shades behind the letters."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report import drawings
from pipeline.report.blocks import (
    Block,
    Box,
    Cell,
    Chart,
    Facts,
    Gallery,
    Picture,
    Section,
    Table,
    Text,
    figures,
    titled,
    words,
)
from pipeline.report.data.reading import worst_confusions
from pipeline.report.formats import Run, left_out, number, percent, plain, run_name, spread
from pipeline.report.report import Report

# The cells of a larger matrix cannot be read: its worst are listed.
_MAX_MATRIX = 25
_MAX_CONFUSIONS = 10
_MAX_CLASSES = 100
# Nats with the darkest of so many shades.
_DARKEST_NATS = 7.0
_SHADES = 8
_POSITIONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000)
_MAX_POSITIONS = 500
_MAX_PASSAGES = 8
_LONGEST = 2_000


def evaluation(report: Report) -> Iterator[Section]:
    """The evaluation of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        yield Section("evaluation", "Evaluation", evaluation_blocks(report, runs[0], "this run"))


def evaluation_blocks(report: Report, run: Run, name: str, *, with_drawings: bool = True) -> list[Block]:
    """The blocks of a run's evaluation. Empty if it has none."""
    facts = run["evaluation"]
    if not facts:
        return []
    if is_text(facts):
        return _text_blocks(run, facts, name, with_drawings)
    return _image_blocks(run, facts, report.pictures_of(run), name, with_drawings)


def is_text(facts: Mapping[str, Any] | None) -> bool:
    """Whether an evaluation is one of a text."""
    return bool(facts) and facts.get("problem") == NEXT_TOKEN


def label_names(facts: Mapping[str, Any]) -> list[str]:
    """The labels of an evaluation."""
    return [plain(name, 24) for name in facts["label_names"]]


def _image_blocks(
    run: Run, facts: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], name: str, with_drawings: bool
) -> list[Block]:
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


def _text_blocks(run: Run, facts: Mapping[str, Any], name: str, with_drawings: bool) -> list[Block]:
    one, losses = units_of_run(facts).one, facts["position_loss"]
    places = [place for place in _POSITIONS if place < len(losses)] + [len(losses)] * bool(losses)
    rows = [(number(place), number(losses[place - 1], 3)) for place in places]
    by_place: Block = Table(figures("place", "loss, nats"), rows, label=f"Loss by place: {name}", style="classes")
    # A sequence of one token has one place.
    if with_drawings and len(losses) > 1:
        by_place = Chart(
            f"Loss by place in the sequence, {run_name(run)}, in nats",
            partial(drawings.plot_positions, spread([*enumerate(losses, start=1)], _MAX_POSITIONS)),
            [f"place {place}: {loss}" for place, loss in rows],
            panels=1,
        )
    blocks = [
        Box("part", titled("Test split", Facts(text_rows(facts)))),
        Box("part", [Text("Loss by place in the sequence", "heading"), by_place]),
    ]
    written = []
    for sample in facts["written"]:
        written.append(Text(f"Temperature {number(sample['temperature'], 1)}", "note"))
        written.append(Text(readable(sample["text"]), "prose", lead=readable(sample["prompt"])))
    passages = []
    for passage in facts["passages"][:_MAX_PASSAGES]:
        where = f"Test sequence {number(passage['index'])}: {number(passage['loss'], 2)} nats a {one}"
        passages += [Text(where, "note"), Text(kind="prose", shades=_shades(passage["pieces"], passage["nats"]))]
    note = Text(f"The darker, the more nats a {one} took; the first is not predicted.", "note")
    surprising = titled("The most surprising passages", note, *passages) if passages else []
    return [Box("pair", blocks), *titled("Written by the network", *written), *surprising]


def text_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The figures of the test split."""
    one = units_of_run(facts).one
    splits = ", ".join(f"{plain(split)} {number(count)}" for split, count in facts["characters"].items())
    return [
        ("Test loss", f"{number(facts['loss'], 4)} nats a {one}"),
        (f"Bits a {one}", number(facts["bits"], 4)),
        ("Perplexity", number(facts["perplexity"], 2)),
        ("Likeliest is right", percent(facts["accuracy"], 2)),
        ("Vocabulary", f"{number(len(facts['vocabulary']))} {plain(facts['tokens'])}"),
        ("Sequences", f"{number(facts['num_examples'])} of {number(facts['sequence_length'])}, each without memory"),
        ("Predicted", splits),
    ]


def readable(text: str) -> str:
    """Untrusted text with its line ends, without other control or direction marks, of bounded length."""
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter)[0] != "C" else "\ufffd" for letter in text[:_LONGEST]
    )


def _shades(pieces: Sequence[str], nats: Sequence[float | None]) -> list[tuple[str, int]]:
    """The pieces with their shades. Pieces of one shade are joined."""
    shades = [0 if one is None else max(0, min(_SHADES, round(_SHADES * one / _DARKEST_NATS))) for one in nats]
    # A surprising line end must be visible.
    texts = [f"↵{piece}" if shade and piece == "\n" else piece for piece, shade in zip(pieces, shades, strict=True)]
    runs = groupby(zip(texts, shades, strict=True), key=itemgetter(1))
    return [(readable("".join(text for text, _ in run)), shade) for shade, run in runs]
