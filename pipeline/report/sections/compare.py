"""Comparison of two rows of the scoreboard, and data with which the page compares up to four.

Accuracies of one run each are compared on the test examples that only one of them predicts correctly (McNemar 1947).
This does not measure the variation between seeds. Rows with several seeds are compared as in `data.changes`.
"""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.special import ndtr

from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Facts, Section, Table, Text, numbers, words
from pipeline.report.data.champion import paired_probability
from pipeline.report.data.changes import NOISE_SIGMA, compare_metrics, judge_change, sampling_error
from pipeline.report.data.experiments import has_other_data, ranked
from pipeline.report.data.scenarios import Row, differing
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import row_settings
from pipeline.runs.record import FINISHED

#: Largest probability of a difference between equal models that counts as more than noise.
MAX_PROBABILITY = 2 * float(ndtr(-NOISE_SIGMA))
#: Largest size of the page's data. The oldest rows are omitted.
MAX_BYTES = 5_000_000

# Title, field, factor, decimals and unit. Noise is estimated for the first metrics.
_METRICS = (
    ("test accuracy", "test_accuracy", 100, 2, "%"),
    ("validation accuracy", "validation_accuracy", 100, 2, "%"),
    ("test loss", "test_loss", 1, 4, ""),
    ("training time", "train_seconds", 1, 1, " s"),
    ("epoch time", "epoch_seconds", 1, 2, " s"),
    ("examples per second", "examples_per_second", 1, 0, ""),
)
_NUM_JUDGED = 3
_CURVES = ("epoch", "test_accuracy", "accuracy", "test_loss", "loss")
_MAX_POINTS = 100
_MAX_LABELS, _MAX_EXAMPLES = 10, 20
# The page refers to these by their indices. "" means that the rows have different or unknown test data.
_VERDICTS = ("within noise", "more than noise", "unknown, too few runs", "")
_CHAMPION_NOTE = "p is the probability of so low a result between equal models, corrected for the number of labels."
_SEED_NOTE = "Each row has one run. Another seed may give another result."


def compare(report: Report) -> Iterator[Section]:
    """Yield the comparison of the two best rows with the same test data, or else of the two newest."""
    if found := _pair(report):
        note, pair = found
        yield Section("compare", "Compare", [Text(note, "note"), *_comparison(report, *pair)])


def champion(report: Report) -> Iterator[Section]:
    """Yield the labels of which the newest run gets fewer examples right than the run in use."""
    if found := report.comparison:
        columns = [*words("label"), *numbers("examples", "run in use", "newest run", "difference", "p")]
        rows = [
            (
                fmt.plain(one.name, 24),
                fmt.number(one.examples),
                *map(fmt.percent, (one.before, one.after)),
                fmt.points(one.after - one.before),
                f"{one.p_value:.2g}",
            )
            for one in found.labels[:_MAX_LABELS]
            if one.after < one.before
        ]
        table = Table(columns, rows, label="Labels with fewer right answers than the run in use", style="classes")
        yield Section("champion", "Run in use", [table, Text(_CHAMPION_NOTE if rows else "", "note")])


def lead_sentence(report: Report, experiment: str) -> str:
    """Return by how much the best row of an experiment leads the second one. Empty if it is not known."""
    listed = [row for row in report.scenarios if row.run.experiment == experiment]
    rows = ranked(listed)[0][:2]
    if len(rows) == 1 < len(listed):
        return "Only one row of the scoreboard is comparable, so there is no second one to compare it with."
    if len(rows) == 1 or not _is_comparable(rows):
        return ""
    field = rows[0].run.ranking.metric
    title, factor, decimals, unit = next((title, *form) for title, name, *form in _METRICS if name == field)
    best, second = (getattr(row, field).mean for row in rows)
    lead = fmt.number(abs(best - second), decimals, " points" if unit == "%" else unit, factor)
    judged = judge_pair(report, *rows, field)
    noise = "may be noise, as each row has too few runs" if judged.startswith("unknown") else f"is {judged}"
    model = fmt.model_and_recipe(rows[0].run)
    value = fmt.number(best, decimals, unit, factor)
    return f"Row 1 of the scoreboard, {model}, has the best {title}, {value}. Its lead of {lead} over row 2 {noise}."


def _pair(report: Report) -> tuple[str, tuple[Row, Row]] | None:
    """Return the two rows that are compared without a choice of the reader, with a note. None if no rows compare."""
    best, newest_first = report.best(), _newest_first(report)
    best_first = ranked([row for row in newest_first if best and row.run.experiment == best.experiment])[0]
    if pair := next(filter(_is_comparable, product(best_first[:1], best_first[1:])), None):
        return "The best row, and the next one with the same test data.", pair
    if pair := next(filter(_is_comparable, combinations(newest_first, 2)), None):
        other = " The best row has other test data." if best and has_other_data(best, pair[0].run) else ""
        return f"The two newest rows with the same test data.{other}", pair[::-1]
    return None


def _is_comparable(rows: Sequence[Row]) -> bool:
    keys = {_data_key(row) for row in rows}
    return len(keys) == 1 and None not in keys


def _newest_first(report: Report) -> list[Row]:
    """Return the finished rows of the requested experiments, or of all."""
    current = {experiment.name for experiment in report.experiments if experiment.is_current}
    rows = [row for row in report.scenarios if row.run.status == FINISHED]
    return [row for row in rows if not current or row.run.experiment in current]


def _data_key(row: Row) -> tuple[str, ...] | None:
    """Return the problem with its test data, None if the data are unknown."""
    digest = (row.run.content_digests or {}).get("test")
    return digest and (row.run.problem, row.run.tokens, digest)


def _comparison(report: Report, *rows: Row) -> Iterator[Block]:
    facts = [row_settings(row) for row in rows]
    names = [f"{_name(row)}, finished {fmt.moment(row.finished_at)}" for row in rows]
    yield Facts([*zip("AB", names, strict=True)])
    differences = [(name, *(values[name] for values in facts)) for name in differing(facts)]
    yield Table(words("setting", "A", "B"), differences, label="Settings that differ between A and B", style="classes")
    yield Text("" if differences else "The settings of A and B do not differ.")
    metrics = []
    for index, (title, field, factor, decimals, unit) in enumerate(_METRICS):
        spreads = [getattr(row, field) for row in rows]
        if None not in (means := [spread.mean for spread in spreads]):
            texts = [fmt.number(spread, decimals, unit, factor) for spread in spreads]
            change = fmt.signed(means[1] - means[0], decimals, " points" if unit == "%" else unit, factor)
            metrics.append((title, *texts, change, judge_pair(report, *rows, field) if index < _NUM_JUDGED else ""))
    columns = [*words("metric"), *numbers("A", "B", "B − A"), *words("difference")]
    yield Table(columns, metrics, label="Metrics of A and B", style="overview")
    if max(len(row.seeds) for row in rows) == 1:
        yield Text(_SEED_NOTE, "note")
    else:
        yield Text("The metrics are means over the seeds. Curves, labels and examples are of one seed per row.", "note")
    if any(len(row.run.curves) > 1 for row in rows):
        legend = [("A", ""), ("B", "")]
        yield drawings.curve_chart([row.run for row in rows], "AB", " of A and B", legend=legend, has_table=True)
    recalls = [_recalls(row) for row in rows]
    if recalls[0].keys() == recalls[1].keys():
        changes = {name: recalls[1][name] - recalls[0][name] for name in recalls[0]}
        largest = sorted(filter(changes.get, changes), key=lambda name: -abs(changes[name]))[:_MAX_LABELS]
        labels = [(name, *(fmt.percent(each[name]) for each in recalls), fmt.points(changes[name])) for name in largest]
        columns = [*words("label"), *numbers("recall A", "recall B", "B − A")]
        yield Box("fold", [Table(columns, labels, "Recall by label of A and B")], "Largest differences by label")
    if (masks := _correct(report, *rows)) is not None:
        lists = [*_examples(report, rows, masks, 0), *_examples(report, rows, masks, 1)]
        yield Box("fold", lists, "Test examples that only one run gets right")


def _name(row: Row) -> str:
    return f"{fmt.model_and_recipe(row.run)} ({fmt.plain(row.run.fingerprint)[:8]})"


def _label_names(row: Row) -> list[str]:
    return [fmt.plain(name, 24) for name in getattr(row.run.evaluation, "label_names", ())]


def _recalls(row: Row) -> dict[str, float]:
    classes = getattr(row.run.evaluation, "classes", ())
    return {name: entry.recall or 0.0 for name, entry in zip(_label_names(row), classes, strict=False)}


def judge_pair(report: Report, first: Row, second: Row, field: str) -> str:
    """Return whether the difference of a metric is more than noise, as one of the four verdicts."""
    if not _is_comparable((first, second)) or None in (getattr(first, field).mean, getattr(second, field).mean):
        return ""
    values = [[*{run.fingerprint: getattr(run, field) for run in row.runs}.values()] for row in (first, second)]
    if min(map(len, values)) > 1:
        examples = first.run.test_examples if field == "test_accuracy" else None
        noise = sampling_error(first.run.problem, getattr(first, field).mean, examples)
        is_noise = judge_change(compare_metrics(values[1], values[0], values, min_noise=noise)) == "noise"
        return "within noise" if is_noise else "more than noise"
    masks = _correct(report, first, second) if field == "test_accuracy" else None
    if masks is None:
        return "unknown, too few runs"
    only_one = [int((masks[index] & ~masks[1 - index]).sum()) for index in (0, 1)]
    return "within noise" if paired_probability(*only_one) > MAX_PROBABILITY else "more than noise"


def _correct(report: Report, *rows: Row) -> list[np.ndarray] | None:
    """Return the correct predictions of the same test examples, bool (examples,) per row, or None."""
    predictions = [report.predictions_of(row.run) for row in rows]
    if None in predictions or len({_test_key(row, each) for row, each in zip(rows, predictions, strict=True)}) > 1:
        return None
    return [each.predicted == each.labels for each in predictions]


def _test_key(row: Row, predictions: Any) -> tuple[Any, ...]:
    return tuple(_label_names(row)), tuple(predictions.keys), predictions.labels.tobytes()


def _examples(report: Report, rows: Sequence[Row], masks: Sequence[np.ndarray], winner: int) -> list[Block]:
    """Return the examples that only one of two rows gets right, with the wrong prediction of the other."""
    right, wrong = (report.predictions_of(rows[index].run) for index in (winner, 1 - winner))
    names, indices = _label_names(rows[0]), np.flatnonzero(masks[winner] & ~masks[1 - winner])
    letters = "AB"[winner], "AB"[1 - winner]
    lines = [
        (fmt.plain(right.keys[index]), names[right.labels[index]], names[wrong.predicted[index]])
        for index in indices[:_MAX_EXAMPLES]
    ]
    table = Table(words("example", "actual", f"predicted by {letters[1]}"), lines, label=f"Only {letters[0]} is right")
    more = f", the first {len(lines)} of them" if len(lines) < len(indices) else ""
    return [Text(f"Only {letters[0]} is right on {fmt.plural(len(indices), 'example')}{more}.", "finding"), table]


def compare_data(report: Report) -> str:
    """Return the data of all rows as JSON without "<", for a script element. Empty without comparable rows."""
    if not _pair(report):
        return ""
    rows = _newest_first(report)
    facts = [row_settings(row) for row in rows]
    swept = differing(facts)
    data: dict[str, Any] = {
        "metrics": [[title, *form] for title, _, *form in _METRICS],
        "verdicts": _VERDICTS,
        "note": _SEED_NOTE,
        "tests": _tests(report, rows),
        "rows": [],
    }
    size = len(_json(data))
    for index, (row, values) in enumerate(zip(rows, facts, strict=True)):
        entry = _entry(report, row, {name: values[name] for name in swept}, data["tests"])
        # A digit per row above, for each metric that is judged.
        entry["judged"] = [
            "".join(str(_VERDICTS.index(judge_pair(report, other, row, field))) for other in rows[:index])
            for _, field, *_ in _METRICS[:_NUM_JUDGED]
        ]
        size += len(_json(entry)) + 1
        if size > MAX_BYTES:
            break
        data["rows"].append(entry)
    return _json(data)


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _tests(report: Report, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the examples of each test split that only some rows get right, with the rows' correct ones as bits."""
    groups: dict[tuple, list[tuple[Row, Any]]] = {}
    for row in rows:
        if (predictions := report.predictions_of(row.run)) is not None:
            groups.setdefault(_test_key(row, predictions), []).append((row, predictions))
    tests = []
    for (names, keys, _), members in groups.items():
        masks = np.stack([predictions.predicted == predictions.labels for _, predictions in members])
        indices = np.flatnonzero(masks.any(axis=0) & ~masks.all(axis=0))
        labels = members[0][1].labels
        bits = [base64.b64encode(np.packbits(mask[indices]).tobytes()).decode("ascii") for mask in masks]
        tests.append(
            {
                "keys": [fmt.plain(keys[index]) for index in indices],
                "labels": [names[labels[index]] for index in indices],
                "bits": {fmt.run_anchor(row.run): text for (row, _), text in zip(members, bits, strict=True)},
            }
        )
    return tests


def _entry(report: Report, row: Row, facts: dict[str, str], tests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    run, anchor = row.run, fmt.run_anchor(row.run)
    points = fmt.spread(run.curves, _MAX_POINTS)
    metrics = [getattr(row, field) for _, field, *_ in _METRICS]
    return {
        "id": anchor,
        "name": _name(row),
        "data": _data_key(row),
        "settings": facts,
        "texts": [
            fmt.number(spread, *form[1:], form[0]) for spread, (_, _, *form) in zip(metrics, _METRICS, strict=True)
        ],
        "means": [_rounded(spread.mean) for spread in metrics],
        "seeds": len(set(row.seeds)),
        "curves": [[_rounded(getattr(point, name), 4) for point in points] for name in _CURVES],
        "recalls": {name: _rounded(recall, 4) for name, recall in _recalls(row).items()},
        "test": next((index for index, test in enumerate(tests) if anchor in test["bits"]), None),
    }


def _rounded(value: float | None, digits: int = 12) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
