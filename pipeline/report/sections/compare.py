"""Comparison of two rows of the scoreboard, data with which the page compares up to four, and a table for two runs.

Accuracies of one run each are compared on the test examples that only one of them predicts correctly (McNemar 1947).
This does not measure the variation between seeds. Rows with several seeds are compared as in `data.history`.
"""

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Facts, Section, Table, Text, numbers, words
from pipeline.report.data.champion import paired_probability
from pipeline.report.data.history import NOISE_SIGMA, compare_metrics, judge_change, sampling_error
from pipeline.report.data.reading import differing, facts, leaves, read_run
from pipeline.report.data.scoreboard import Row, loss_units, ranked
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import row_settings
from pipeline.runs import record
from pipeline.runs.record import FINISHED
from pipeline.settings.training import OF_THE_RECIPE

#: Largest probability of a difference between equal models that counts as more than noise.
MAX_PROBABILITY = 2 * float(ndtr(-NOISE_SIGMA))
#: Largest number of rows in the page's data, which bounds its size. The oldest rows are omitted.
MAX_ROWS = 200

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
_MAX_LABELS, _MAX_EXAMPLES, _DIGEST_LETTERS = 10, 20, 12
# The page refers to these by their indices. "" means that the rows have different or unknown test data.
_VERDICTS = ("within noise", "more than noise", "unknown, too few runs", "")
_CHAMPION_NOTE = "p is the probability of so low a result between equal models, corrected for the number of labels."
_SEED_NOTE = "Each row has one run. Another seed may give another result."
_MEAN_NOTE = "The metrics are means over the seeds. Curves, labels and examples are of one seed per row."


def compare(report: Report) -> Iterator[Section]:
    """Yield the comparison of the two best rows with the same test data, or else of the two newest."""
    if found := _pair(report):
        note, pair = found
        yield Section("compare", "Compare", [Text(note, "note"), *_comparison(report, *pair)])


def champion(report: Report) -> Iterator[Section]:
    """Yield the labels of which the newest run gets fewer examples right than the run in use."""
    rows = []
    for one in report.comparison.labels[:_MAX_LABELS] if report.comparison else ():
        if one.after < one.before:
            shares = fmt.percent(one.before), fmt.percent(one.after), fmt.points(one.after - one.before)
            rows.append((fmt.plain(one.name, 24), fmt.number(one.examples), *shares, f"{one.p_value:.2g}"))
    columns = [*words("label"), *numbers("examples", "run in use", "newest run", "difference", "p")]
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
    title, _, factor, decimals, unit = next(metric for metric in _METRICS if metric[1] == field)
    best, second = (getattr(row, field).mean for row in rows)
    lead = fmt.number(abs(best - second), decimals, " points" if unit == "%" else unit, factor)
    judged = judge_pair(report, *rows, field)
    noise = "may be noise, as each row has too few runs" if judged.startswith("unknown") else f"is {judged}"
    name = f"{fmt.model_and_recipe(rows[0].run)}, has the best {title}, {fmt.number(best, decimals, unit, factor)}"
    return f"Row 1 of the scoreboard, {name}. Its lead of {lead} over row 2 {noise}."


def _pair(report: Report) -> tuple[str, tuple[Row, Row]] | None:
    """Return the two rows that are compared without a choice of the reader, with a note. None if no rows compare."""
    best, newest_first = report.best(), _newest_first(report)
    best_first = ranked([row for row in newest_first if best and row.run.experiment == best.experiment])[0]
    if pair := next(filter(_is_comparable, product(best_first[:1], best_first[1:])), None):
        return "The best row, and the next one with the same test data.", pair
    pair = next(filter(_is_comparable, combinations(newest_first, 2)), None)
    return pair and ("The two newest rows with the same test data.", pair[::-1])


def _is_comparable(rows: Sequence[Row]) -> bool:
    keys = {_data_key(row) for row in rows}
    return len(keys) == 1 and None not in keys


def _newest_first(report: Report) -> list[Row]:
    """Return the finished rows of the requested experiments, or of all."""
    current = {experiment.name for experiment in report.experiments if experiment.is_current}
    rows = [row for row in report.scenarios if row.run.status == FINISHED]
    return [row for row in rows if not current or row.run.experiment in current]


def _data_key(row: Row) -> tuple[str, ...] | None:
    """Return the problem with its test data and the units of its loss, None if the data are unknown."""
    digest = (row.run.content_digests or {}).get("test")
    return digest and (row.run.problem, row.run.tokens, digest, *loss_units(row.run))


def _comparison(report: Report, *rows: Row) -> Iterator[Block]:
    settings = [row_settings(row) for row in rows]
    names = [f"{fmt.model_and_recipe(row.run)}, finished {fmt.moment(row.finished_at)}" for row in rows]
    yield Facts([*zip("AB", names, strict=True)])
    differences = [(name, *(values[name] for values in settings)) for name in differing(settings)]
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
    yield Text(_SEED_NOTE if max(len(row.seeds) for row in rows) == 1 else _MEAN_NOTE, "note")
    yield from (_label_table(*map(_recalls, rows)), *_example_tables(report, rows))


def _label_table(first: dict[str, float], second: dict[str, float]) -> Table:
    changes = {name: second[name] - first[name] for name in first if name in second}
    largest = sorted(filter(changes.get, changes), key=lambda name: -abs(changes[name]))[:_MAX_LABELS]
    lines = [(name, fmt.percent(first[name]), fmt.percent(second[name]), fmt.points(changes[name])) for name in largest]
    columns = [*words("label"), *numbers("recall of A", "recall of B", "B − A")]
    return Table(columns, lines, label="Recall of the labels that differ most", style="classes")


def _example_tables(report: Report, rows: Sequence[Row]) -> Iterator[Table]:
    if (right := _right(report, *rows)) is None:
        return
    lines, predictions, names = [], report.predictions_of(rows[0].run), _label_names(rows[0])
    for index, pair in enumerate(("A, not B", "B, not A")):
        examples = np.flatnonzero(right[index] & ~right[1 - index])
        keys = [f"{fmt.plain(predictions.keys[i])} ({names[predictions.labels[i]]})" for i in examples[:_MAX_EXAMPLES]]
        lines.append((pair, fmt.number(len(examples)), ", ".join(keys) + ", …" * (len(examples) > len(keys))))
    columns = [*words("right"), *numbers("examples"), *words("names")]
    yield Table(columns, lines, label="Test examples that only one row gets right", style="classes")


def _label_names(row: Row) -> list[str]:
    return [fmt.plain(name, 24) for name in getattr(row.run.evaluation, "label_names", ())]


def _recalls(row: Row) -> dict[str, float]:
    classes = getattr(row.run.evaluation, "classes", ())
    return {name: one.recall or 0.0 for name, one in zip(_label_names(row), classes, strict=False)}


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
    if field != "test_accuracy" or (right := _right(report, first, second)) is None:
        return "unknown, too few runs"
    probability = paired_probability(*(int((right[index] & ~right[1 - index]).sum()) for index in (0, 1)))
    return "within noise" if probability > MAX_PROBABILITY else "more than noise"


def _right(report: Report, *rows: Row) -> list[np.ndarray] | None:
    """Return the right predictions of the same test examples, bool (examples,) per row, or None."""
    predictions = [report.predictions_of(row.run) for row in rows]
    if None in predictions or len({_test_key(row, one) for row, one in zip(rows, predictions, strict=True)}) > 1:
        return None
    return [one.predicted == one.labels for one in predictions]


def _test_key(row: Row, predictions: Any) -> tuple[Any, ...]:
    return tuple(_label_names(row)), tuple(predictions.keys), predictions.labels.tobytes()


def compare_data(report: Report) -> str:
    """Return the data of all rows as JSON without "<", for a script element. Empty without comparable rows."""
    if not (found := _pair(report)):
        return ""
    rows, entries = _newest_first(report)[:MAX_ROWS], []
    settings, tests = [row_settings(row) for row in rows], _tests(report, rows)
    swept = differing(settings)
    for index, (row, values) in enumerate(zip(rows, settings, strict=True)):
        # A digit per row above, for each metric that is judged.
        judged = [
            "".join(str(_VERDICTS.index(judge_pair(report, other, row, field))) for other in rows[:index])
            for _, field, *_ in _METRICS[:_NUM_JUDGED]
        ]
        anchor, points = fmt.run_anchor(row.run), fmt.spread(row.run.curves, _MAX_POINTS)
        entries.append(
            {
                "id": anchor,
                "name": f"{fmt.model_and_recipe(row.run)} ({fmt.plain(row.run.fingerprint)[:8]})",
                "data": _data_key(row),
                "texts": [fmt.number(getattr(row, field), *form, factor) for _, field, factor, *form in _METRICS],
                "means": [_rounded(getattr(row, field).mean) for _, field, *_ in _METRICS],
                "seeds": len(set(row.seeds)),
                "curves": [[_rounded(getattr(point, name), 4) for point in points] for name in _CURVES],
                "recalls": {name: _rounded(recall, 4) for name, recall in _recalls(row).items()},
                "test": next((place for place, test in enumerate(tests) if anchor in test["bits"]), None),
                "settings": {name: values[name] for name in swept},
                "judged": judged,
            }
        )
    data = {
        "metrics": [[title, *form] for title, _, *form in _METRICS],
        "verdicts": _VERDICTS,
        "notes": [_SEED_NOTE, _MEAN_NOTE],
        "tests": tests,
        "shown": [fmt.run_anchor(row.run) for row in found[1]],
        "rows": entries,
    }
    # The data of a script element contain no tag.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _tests(report: Report, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the examples of each test split that only some rows get right, with the rows' correct ones as bits."""
    groups: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        if (predictions := report.predictions_of(row.run)) is not None:
            groups.setdefault(_test_key(row, predictions), {})[fmt.run_anchor(row.run)] = predictions
    tests = []
    for (names, keys, _), members in groups.items():
        masks = np.stack([predictions.predicted == predictions.labels for predictions in members.values()])
        indices = np.flatnonzero(masks.any(axis=0) & ~masks.all(axis=0))
        labels = next(iter(members.values())).labels
        bits = [base64.b64encode(np.packbits(mask[indices]).tobytes()).decode("ascii") for mask in masks]
        test = {"bits": dict(zip(members, bits, strict=True)), "labels": [names[labels[index]] for index in indices]}
        tests.append({**test, "keys": [fmt.plain(keys[index]) for index in indices]})
    return tests


def _rounded(value: float | None, digits: int = 12) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


class Difference(NamedTuple):
    """A fact that differs between two runs. None for a run without it."""

    section: str
    name: str
    first: Any
    second: Any


def compare_runs(first_folder: Path, second_folder: Path) -> list[Difference]:
    """Return the differences of the runs in two folders, settings first, metrics last. Raises DamagedArtifactError."""
    pair = [_facts(folder) for folder in (first_folder, second_folder)]
    first, second = (dict(leaves(sections, containers=Mapping)) for sections in pair)
    # A run without a manifest has no section for code.
    paths = sorted(differing((first, second)), key=lambda path: [*pair[0]].index(path[0]))
    return [Difference(path[0], ".".join(path[1:]), first.get(path), second.get(path)) for path in paths]


def difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    """Return the differences of two runs with these names."""
    rows = [(one.section.upper(), fmt.plain(one.name), _show(one.first), _show(one.second)) for one in differences]
    return Table(words("", "", *map(fmt.plain, names)), rows, head=1)


def _facts(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    identity = read_manifest(folder)["identity"] if (folder / MANIFEST_NAME).exists() else {}
    receipt, evaluation = run.receipt or {}, run.evaluation
    versions = receipt.get("versions")
    evidence = {"device_verified": fmt.device_verified(run), "device_reason": run.device_reason}
    return {
        # The manifest names these as the settings do.
        "settings": identity.get("settings") or facts(run, record.names("setting")),
        "data": facts(run, record.names("data")),
        "code": identity.get("code", {}),
        "versions": identity.get("packages", {}) | (versions if isinstance(versions, Mapping) else {}),
        "hardware": facts(run, record.names("hardware", "computation")) | evidence,
        "host": facts(run, ("hostname", "fetched_from")) | {name: receipt.get(name) for name in ("host", "flags")},
        "metrics": facts(run, ("status", *record.names("measured")))
        | {"expected_calibration_error": getattr(evaluation, "expected_calibration_error", None)},
    }


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return fmt.yes_no(value)
    if isinstance(value, float):
        # About four significant digits.
        digits = 4 if abs(value) < 1 else 2 if abs(value) < 1_000 else 0
        return "recipe" if value == OF_THE_RECIPE else f"{value:,.{digits}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = (
        fmt.MISSING
        if value is None
        else fmt.plain(", ".join(map(str, value)) if isinstance(value, list) else value, 60)
    )
    is_digest = len(text) in (16, 64) and set(text) <= set("0123456789abcdef")
    return text[:_DIGEST_LETTERS] if is_digest else text
