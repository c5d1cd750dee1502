"""Evaluation of several labels per image, and of numbers."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import PREDICTIONS_NAME, TEST_IMAGES_NAME
from pipeline.report import drawings
from pipeline.report.blocks import Block, Chart, Gallery, Picture, Table, Text, numbers, titled, words
from pipeline.report.data.champion import Answers
from pipeline.report.data.labels import LabelMetrics, Tiles, cut_sheet
from pipeline.report.data.reading import Run
from pipeline.report.formats import has_groups, left_out, number, percent, plain, run_name
from pipeline.report.report import Report
from pipeline.runs.predictions import read_table
from pipeline.runs.validation import Count, Number, Untrusted, message

_MAX_VALUES, _MAX_NAME, _MAX_SHOWN, _MAX_CHARTS = 10_000, 300, 100, 4
_Interval = Annotated[list[Number], Field(min_length=3, max_length=3)]


class Worst(Untrusted):
    """A test image with one of the worst predictions. Values are those of the labels or numbers, in order."""

    index: Count
    name: str
    actual: list[Number]
    predicted: list[Number]


class _Evaluation(Untrusted):
    label_names: Annotated[list[str], Field(min_length=1, max_length=_MAX_VALUES)]
    counts: dict[str, Count]
    num_examples: Count
    data_warnings: list[tuple[str, str]] = []
    worst: list[Worst]
    tiles: Tiles


class LabelScores(LabelMetrics):
    """Metrics of a label with its threshold."""

    threshold: Number
    average_precision: Number


class LabelsEvaluation(_Evaluation):
    """Evaluation of several labels per image."""

    problem: Literal["multi_label"]
    thresholds_of: Literal["", "validation"]
    accuracy: Number
    exact_matches: Number
    mean_average_precision: Number
    micro_f1: Number
    macro_f1: Number
    labels: list[LabelScores]


class Value(Untrusted):
    """Metrics of a predicted number with 95% intervals, statistics of the train split, and (actual, predicted)."""

    mean: Number
    deviation: Number
    mae: _Interval
    rmse: _Interval
    r2: _Interval
    points: list[tuple[float, float]]


class ValuesEvaluation(_Evaluation):
    """Evaluation of predicted numbers."""

    problem: Literal["regression"]
    values: list[Value]


def scores(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the metrics that people compare."""
    facts = run.evaluation
    if isinstance(facts, LabelsEvaluation):
        yield "Mean average precision", percent(facts.mean_average_precision, 2)
        yield "Macro F1", percent(facts.macro_f1, 2)
        yield "Micro F1", percent(facts.micro_f1, 2)
    for name, value in _named(facts)[:_MAX_CHARTS] if isinstance(facts, ValuesEvaluation) else ():
        yield f"R² of {name}", number(value.r2[0], 3)
        yield f"Mean absolute error of {name}", _measured(value.mae[0])


def label_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run with several labels per image."""
    facts: LabelsEvaluation = run.evaluation
    origin = "Each label has the threshold with the greatest F1 on the validation split."
    if not facts.thresholds_of:
        origin = "All thresholds are 0.5. Set [Records] validation_share to choose them on a validation split."
    columns = [*words("label"), *numbers("test images", "threshold", "average precision", "precision", "recall", "F1")]
    rows = []
    for label, one in zip(facts.label_names, facts.labels[:_MAX_SHOWN], strict=False):
        shares = map(percent, (one.average_precision, one.precision, one.recall, one.f1))
        rows.append((plain(label, 24), number(one.examples), number(one.threshold, 3), *shares))
    table = Table(columns, rows, label=f"By label: {name}", style="classes")
    matches = Text(f"All labels of {percent(facts.exact_matches)} of the test images are right. {origin}")
    more = Text(left_out(len(facts.labels) - _MAX_SHOWN, "more label"))
    return [matches, *titled("By label", table, more), *_worst(report, run, _labels_of)]


def value_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run that predicts numbers."""
    facts: ValuesEvaluation = run.evaluation
    columns = [*words("value"), *numbers("mean absolute error", "root mean squared error", "R²", "train mean ± σ")]
    rows, charts = [], []
    for title, value in _named(facts)[:_MAX_SHOWN]:
        train = f"{_measured(value.mean)} ± {_measured(value.deviation)}"
        measures = ("{} ({} to {})".format(*map(_measured, interval)) for interval in (value.mae, value.rmse, value.r2))
        rows.append((title, *measures, train))
        plot = partial(drawings.plot_values, value.points, title)
        charts.append(Chart(f"Predicted and actual {title}: {run_name(run)}", plot, panels=1, has_table=True))
    table = Table(columns, rows, label=f"By value: {name}", style="classes")
    groups = " The images of a group depend on each other, so the intervals are too narrow." * has_groups(run)
    few = "They are too narrow for few images or a few large errors."
    note = Text(f"Intervals of 95% by a bootstrap over the test images. {few}{groups}", "note")
    drawn = charts[:_MAX_CHARTS] if run in report.requested() else []
    return [*titled("By value", table, note), *drawn, *_worst(report, run, _values_of)]


def read_worst(folder: Path, facts: _Evaluation) -> dict[str, list[str]]:
    """Read the pictures of the worst predictions as base64 PNGs. DamagedArtifactError: The sheet lacks tiles."""
    return {"test_images": cut_sheet(folder / TEST_IMAGES_NAME, facts.tiles, len(facts.worst))}


def read_answers(folder: Path, facts: LabelsEvaluation | ValuesEvaluation) -> Answers | None:
    """Read the losses of a run, and its right decisions about each label."""
    if not (path := folder / PREDICTIONS_NAME).exists():
        return None
    columns = [[f"{kind} {name}" for name in facts.label_names] for kind in ("actual", "predicted")]
    types = {"key": pa.string()} | dict.fromkeys(chain(*columns), pa.float64())
    table = read_table(path, types, facts.num_examples)
    actual, predicted = (np.stack([table[name].to_numpy() for name in names], axis=1) for names in columns)
    described = facts.labels if isinstance(facts, LabelsEvaluation) else facts.values
    if len(described) != len(facts.label_names) or not np.isfinite(actual).all():
        raise DamagedArtifactError(message(path, "expected finite actual numbers for each label of evaluation.json"))
    labels = {}
    if isinstance(facts, LabelsEvaluation):
        losses = -np.log(np.where(actual == 1, predicted, 1 - predicted).clip(1e-7))
        right = (predicted >= [one.threshold or 0.0 for one in facts.labels]) == (actual == 1)
        labels = dict(zip(facts.label_names, right.T, strict=True))
    else:
        losses = np.square((predicted - actual) / [value.deviation or 1.0 for value in facts.values])
    return Answers((facts.label_names, table["key"].to_pylist(), actual.tolist()), losses.mean(axis=1), labels)


def card(run: Run) -> dict[str, Any]:
    """Return the values of the cards."""
    facts: LabelsEvaluation | ValuesEvaluation | None = run.evaluation
    if not facts:
        return {}
    return {
        "labels": [plain(name) for name in facts.label_names],
        "counts": [(plain(split), count) for split, count in facts.counts.items()],
        "rows": [*scores(run)],
    }


def _worst(report: Report, run: Run, describe: Any) -> list[Block]:
    """Return the pictures of the worst predictions. Only those of the best run have images, because of their size."""
    facts, pictures = run.evaluation, []
    pngs = report.pictures_of(run).get("test_images", ()) if run is report.ordered()[0] else ()
    for item, png in zip_longest(facts.worst, pngs, fillvalue=""):
        name, title = plain(item.name, _MAX_NAME), describe(facts, item)
        pictures.append(Picture(png, f"{name}: {title}", title, name))
    return titled(f"The {number(len(pictures))} worst predictions", Gallery(pictures))


def _labels_of(facts: LabelsEvaluation, item: Worst) -> str:
    thresholds = [one.threshold or 0.0 for one in facts.labels]

    def named(values: list[float | None], limits: list[float]) -> str:
        rows = zip(facts.label_names, values, limits, strict=False)
        return ", ".join(plain(name, 24) for name, value, limit in rows if (value or 0) >= limit) or "none"

    return f"predicted {named(item.predicted, thresholds)}, actual {named(item.actual, [1.0] * len(thresholds))}"


def _values_of(facts: ValuesEvaluation, item: Worst) -> str:
    rows = zip(facts.label_names, map(_measured, item.predicted), map(_measured, item.actual), strict=False)
    return ", ".join(f"{plain(name, 24)} predicted {value}, actual {actual}" for name, value, actual in rows)


def _named(facts: ValuesEvaluation) -> list[tuple[str, Value]]:
    return [(plain(name, 24), value) for name, value in zip(facts.label_names, facts.values, strict=False)]


def _measured(value: float | None) -> str:
    """Format a number of unknown magnitude with four digits."""
    return number(None) if value is None else f"{value:,.4g}"
