"""The evaluation of a run: of images or of a text. What surprises a model has shades behind the letters."""

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report import drawings
from pipeline.report.blocks import (
    Block,
    Box,
    Cell,
    Chart,
    Column,
    Gallery,
    Picture,
    Section,
    Table,
    Text,
    pairs,
    plain_table,
)
from pipeline.report.data.evaluation import worst_confusions
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
    wrong = sum(count for true, row in enumerate(facts["confusion_matrix"]) for given, count in enumerate(row)
                if given != true)  # fmt: skip
    shown = f", {number(len(facts['mistakes']))} of them shown" if wrong > len(facts["mistakes"]) else ""
    mistakes = (
        f"Mistakes: {number(wrong)} of {number(facts['num_examples'])} test images{shown}, the most confident first"
    )
    gallery = [*_mistakes(facts, pictures.get("mistakes", ())), *_right(facts, pictures.get("examples", ()))]
    augmented = _augmented(facts, pictures.get("augmented", ()))
    error = percent(facts["expected_calibration_error"])
    return [
        *([Text(mistakes, kind="heading"), Gallery(gallery)] if facts["mistakes"] else []),
        Box("pair", [Box("part", _confusions(facts, name)), Box("part", _classes(facts, name))]),
        Text(f"Calibration: expected error {error}", kind="heading"),
        *([_calibration(run, facts)] if with_drawings else []),
        *([Text(f"Augmented: {plain(run['augment'], 120)}", kind="heading"), Gallery(augmented)] if augmented else []),
    ]


def _mistakes(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[Picture]:
    names = label_names(facts)
    found = []
    for place, one in enumerate(facts["mistakes"]):
        index, label, predicted = number(one["index"]), names[one["label"]], names[one["predicted"]]
        found.append(
            Picture(
                png=pictures[place] if place < len(pictures) else "",
                alternative=f"Test image {index}: {label}, predicted as {predicted}",
                title=predicted,
                value=percent(one["confidence"]),
                note=f"is {label}, test image {index}",
                is_mistake=True,
            )
        )
    return found


def _right(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[Picture]:
    """Of each label the first correct test image of those that are shown."""
    names, found = label_names(facts), {}
    for one, png in zip(facts["examples"], pictures, strict=False):
        if one["predicted"] == one["label"]:
            index, label = number(one["index"]), names[one["label"]]
            alternative = f"Test image {index}: {label}, rightly predicted"
            picture = Picture(png, alternative, title=label, note=f"right, test image {index}")
            found.setdefault(one["label"], picture)
    return list(found.values())


def _augmented(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[Picture]:
    names = label_names(facts)
    found = []
    for one, png in zip(facts["augmented"], pictures, strict=False):
        seen = f"in epoch {number(one['epoch'])}" if one["epoch"] else "as stored"
        image = f"Training image {number(one['index'])}, {names[one['label']]}"
        found.append(Picture(png, f"{image}, {seen}", title="", note=seen))
    return found


def _confusions(facts: Mapping[str, Any], name: str) -> list[Block]:
    names = label_names(facts)
    if len(names) <= _MAX_MATRIX:
        caption = "Test images by true label (rows) and predicted label (columns); the diagonal is correct."
        rows = [*zip(names, facts["confusion_matrix"], strict=True)]
        columns = [
            Column("true ↓ predicted →", lambda row: row[0], style="corner"),
            *(Column(label, _matrix_cell(place, names), True) for place, label in enumerate(names)),
        ]
        table = Table(columns, rows, label=f"Confusion matrix: {name}", caption=caption, style="matrix")
        return [Text("Confusion matrix", kind="heading"), table]
    confusions = confusion_rows(facts)
    if not confusions:
        return []
    heading, titles = "Most frequent confusions", ("true label", "predicted label", "test images")
    return [Text(heading, kind="heading"), plain_table(titles, confusions, f"{heading}: {name}", "classes")]


def _matrix_cell(place: int, names: Sequence[str]) -> Any:
    def cell(row: tuple[str, Sequence[int]]) -> Cell:
        name, counts = row
        share = round(counts[place] / max(1, sum(counts)), 3)
        return Cell(text=number(counts[place]), share=share, is_right=names[place] == name)

    return cell


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


def _classes(facts: Mapping[str, Any], name: str) -> list[Block]:
    titles = ("label", "test images", "precision", "recall", "F1")
    more = left_out(len(facts["classes"]) - _MAX_CLASSES, "more label")
    table = plain_table(titles, class_rows(facts), f"By label: {name}", "classes")
    return [Text("By label", kind="heading"), table, *([Text(more)] if more else [])]


def _calibration(run: Run, facts: Mapping[str, Any]) -> Chart:
    bins = [one for one in facts["calibration"] if one["accuracy"] is not None]
    return Chart(
        f"Calibration of {run_name(run)} over {number(facts['num_examples'])} images",
        lambda text: drawings.draw_calibration(facts["calibration"], alternative_text=text),
        [f"confidence {percent(one['confidence'])}: right {percent(one['accuracy'])}" for one in bins],
    )


def _text_blocks(run: Run, facts: Mapping[str, Any], name: str, with_drawings: bool) -> list[Block]:
    one = units_of_run(facts).one
    losses = facts["position_loss"]
    heading = Text("Loss by place in the sequence", kind="heading")
    places = plain_table(("place", "loss, nats"), position_rows(facts), f"Loss by place: {name}", "classes")
    # A sequence of one token has one place.
    chart = [_positions(run, facts)] if with_drawings and len(losses) > 1 else []
    blocks: list[Block] = [
        Box(
            "pair",
            [
                Box("part", [Text("Test split", kind="heading"), pairs(text_rows(facts))]),
                Box("part", [heading, *(chart or [places])]),
            ],
        )
    ]
    if facts["written"]:
        blocks.append(Text("Written by the network", kind="heading"))
    for written in facts["written"]:
        blocks.append(Text(f"Temperature {number(written['temperature'], 1)}", kind="note"))
        blocks.append(Text(readable(written["text"]), kind="prose", lead=readable(written["prompt"])))
    passages = facts["passages"][:_MAX_PASSAGES]
    if passages:
        blocks.append(Text("The most surprising passages", kind="heading"))
        blocks.append(Text(f"The darker, the more nats a {one} took; the first is not predicted.", kind="note"))
    for passage in passages:
        where = f"Test sequence {number(passage['index'])}: {number(passage['loss'], 2)} nats a {one}"
        blocks.append(Text(where, kind="note"))
        blocks.append(Text(kind="prose", shades=_shades(passage["pieces"], passage["nats"])))
    return blocks


def bits(nats: float | None) -> str:
    """A loss in nats as bits."""
    return number(None if nats is None else nats / math.log(2), 4)


def perplexity(nats: float | None) -> str:
    """The number of equally likely tokens that would surprise as much."""
    return number(None if nats is None else math.exp(min(nats, 700)), 2)


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


def position_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(place, nats) by the number of preceding tokens."""
    losses = facts["position_loss"]
    shown = [place for place in _POSITIONS if place < len(losses)]
    places = list(dict.fromkeys([*shown, len(losses)])) if losses else []
    return [(number(place), number(losses[place - 1], 3)) for place in places]


def _positions(run: Run, facts: Mapping[str, Any]) -> Chart:
    losses = spread([*enumerate(facts["position_loss"], start=1)], _MAX_POSITIONS)
    return Chart(
        f"Loss by place in the sequence, {run_name(run)}, in nats",
        lambda text: drawings.draw_positions(losses, alternative_text=text),
        [f"place {place}: {loss}" for place, loss in position_rows(facts)],
    )


def readable(text: str) -> str:
    """Untrusted text with its line ends, without other control or direction marks, of bounded length."""
    return "".join(
        letter if letter == "\n" or unicodedata.category(letter)[0] != "C" else "\ufffd" for letter in text[:_LONGEST]
    )


def _shades(pieces: Sequence[str], nats: Sequence[float | None]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for piece, one in zip(pieces, nats, strict=True):
        shade = 0 if one is None else max(0, min(_SHADES, round(_SHADES * one / _DARKEST_NATS)))
        # A surprising line end must be visible.
        text = f"↵{piece}" if shade and piece == "\n" else piece
        if found and found[-1][1] == shade:
            found[-1] = (found[-1][0] + text, shade)
        else:
            found.append((text, shade))
    return [(readable(text), shade) for text, shade in found]
