"""Scoreboards: a line for each experiment, and a table of its runs beside published figures."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.problems.results import results_of
from pipeline.problems.units import units_of_all, units_of_run
from pipeline.report import formats as fmt
from pipeline.report.blocks import Box, Cell, Group, Section, Table, Text, figures, words
from pipeline.report.data.changes import change_words
from pipeline.report.data.experiments import have_curves, series_of
from pipeline.report.formats import NO_FIGURE, Run
from pipeline.report.report import Report

# From this accuracy on mistakes are counted.
_FEW_WRONG = 0.95
# A smaller standard error is not stated. That of CIFAR-10's 10,000 images is smaller.
_MUCH = 0.005


def overview(report: Report) -> Iterator[Section]:
    """A line for each experiment, if there are several."""
    if len(report.experiments) < 2:
        return
    titles = ("experiment", "best on the test split", "by", "newest", "change", "training time, s", "hardware")
    rows = []
    for one in report.experiments:
        best = next((row for row in report.scenarios if row["fingerprints"][0] == one["best"]), None)
        newest = next((run for run in report.runs if run["fingerprint"] == one["newest"]), None)
        rows.append(
            (
                fmt.plain(one["experiment"]),
                ranking_figure(best) if best else NO_FIGURE,
                f"{fmt.model_and_recipe(best)}, {fmt.plural(len(best['seeds']), 'run')}" if best else NO_FIGURE,
                f"{ranking_figure(newest) or NO_FIGURE}, {fmt.moment(newest['finished_at'])}" if newest else NO_FIGURE,
                _change(one["change"]),
                fmt.number(best["train_seconds"], 2) if best else NO_FIGURE,
                f"{fmt.device_phrase(best)}, {fmt.computed_in(best)}" if best else NO_FIGURE,
            )
        )
    label = "Experiments: the best row, the newest run, its change, and the time and hardware of the best"
    yield Section("overview", "Experiments", [Table(words(*titles), rows, label=label, style="overview")])


def _change(change: Run | None) -> str:
    if change is None or not change["earlier"]:
        return "no earlier run"
    figure = change["val_accuracy"]
    # Beside a loss it would be taken for a change of the loss.
    what = "" if results_of(change["problem"]).ranking.metric == "val_accuracy" else "accuracy "
    return f"{what}{fmt.points(figure['change'])}, {change_words(figure)}"


def scoreboards(report: Report) -> Iterator[Section]:
    """A scoreboard for each experiment. Those of other experiments than the requested ones are folded."""
    if not report.experiments:
        yield Section("scoreboard", "Scoreboard", [Text("No run has finished yet.")])
    for place, one in enumerate(report.experiments):
        block = table = scoreboard(report, one["experiment"])
        if place and not one["is_current"]:
            block = Box("fold", [table], summary=f"{fmt.plural(len(table.rows), 'row')} of other runs under this root")
        title = f"Scoreboard: {fmt.plain(one['experiment'])}" if len(report.experiments) > 1 else "Scoreboard"
        yield Section("scoreboard" if place == 0 else f"scoreboard-{place + 1}", title, [block])


def scoreboard(report: Report, experiment: str) -> Table:
    """The rows of an experiment, newest first, and below them the figures that were published elsewhere."""
    drawn = report.drawn() if have_curves(report.drawn()) else []
    rows = [row for row in report.scenarios if row["experiment"] == experiment]
    sources: dict[tuple[str, str], list[list[str | Cell]]] = {}
    for row in report.published:
        if row["experiment"] == experiment:
            unsaid = "; ".join(fmt.plain(one, 200) for one in row["unsaid"])
            notes = (fmt.plain(row["source"], 300), fmt.sentence(f"Unsaid: {unsaid}") if unsaid else "")
            sources.setdefault(notes, []).append(published_cells(row))
    title = "Published elsewhere, not measured here"
    published = [Group(title, cells, notes, is_aside=True) for notes, cells in sources.items()]
    below = ", and below them figures that were published elsewhere" if published else ""
    return Table(
        [
            *words("run", "requested → effective device", "device verified", "data, verified", "precision"),
            *figures("batch", "epochs", "training time, s", units_of_all(rows).rate, "test accuracy"),
            *words("repeated", "speed-up, or why none"),
        ],
        [our_cells(row, fmt.mark(row["fingerprints"], report.current), series_of(row, drawn)) for row in rows],
        published,
        label=f"Scoreboard: {fmt.plain(experiment)}",
        caption=f"Runs of this project, the newest first. Runs that differ in their seed alone are one row (mean ± "
        f"standard deviation){below}.{' A tick draws the curves of a row below.' if drawn else ''}",
        style=f"scoreboard sortable{' tall' if len(rows) > 20 else ''}",
    )


def our_cells(row: Run, mark: str, series: list[int]) -> list[str | Cell]:
    """The cells of runs of this project."""
    runs, seeds = len(row["seeds"]), ", ".join(map(fmt.number, row["seeds"]))
    which = fmt.plain(f"seeds {seeds}") if runs > 1 else f"seed {seeds}, {fmt.plain(row['fingerprints'][0])[:8]}"
    several = fmt.plural(runs, "run") if runs > 1 else ""
    augmented = f"augmented by {fmt.plain(row['augment'])}" if row["augment"] else ""
    requested, used = fmt.plain(row["requested_device"]), fmt.plain(row["effective_device"])
    host = f"on {fmt.hosts(row['hostnames'])}" if any(row["hostnames"]) else ""
    verified, data_verified = fmt.device_verified(row), fmt.data_verified(row)
    precision, again, speedup = fmt.plain(row["requested_precision"]), repeated(row), row["speedup"]
    return [
        Cell(
            fmt.model_and_recipe(row),
            notes=(several, fmt.inputs(row), augmented, which, fmt.moment(row["finished_at"])),
            tag=mark,
            alarms=fmt.remarks(row),
            series=series,
        ),
        Cell(f"{requested} → {used}", (fmt.device_note(row), host), needs_care=requested not in ("auto", used)),
        Cell(verified, needs_care=verified != "yes"),
        Cell(fmt.plain(row["dataset"]), (f"verified: {data_verified}",), needs_care=data_verified == "no"),
        ("" if precision in ("auto", row["precision"]) else f"{precision} → ") + fmt.computed_in(row),
        fmt.number(row["global_batch_size"]),
        fmt.number(row["epochs"]),
        fmt.number(row["train_seconds"], 2),
        fmt.number(row["examples_per_second"]),
        accuracy(row),
        Cell(again, needs_care=again.startswith("differs")),
        ("" if speedup["ratio"] is None else f"{fmt.number(speedup['ratio'], 2)} × ") + speedup["words"],
    ]


def published_cells(row: Mapping[str, Any]) -> list[str | Cell]:
    """The cells of a row that was published elsewhere, with the digits of the publication."""
    devices = (fmt.plain(row[name]) for name in ("requested_device", "effective_device"))
    figures = {"an epoch {} s": "epoch_seconds", "an image {} µs": "microseconds_per_example", "loss {}": "val_loss"}
    more = [words.format(fmt.as_published(row[name])) for words, name in figures.items() if row[name] is not None]
    reached, wrong = row["val_accuracy"], row["wrong"]
    accuracy = NO_FIGURE if reached is None else f"{fmt.as_published(100 * reached)} %"
    mistakes = "" if wrong is None else _wrong(fmt.number(wrong), row["test_examples"])
    return [
        Cell(fmt.plain(row["scenario"]), ("published elsewhere", *more, *map(fmt.plain, row["details"]))),
        Cell(" → ".join(devices), (fmt.plain(row["device_note"]),)),
        "not here",
        Cell(fmt.plain(row["datasets"][0]), ("verified: not here",)),
        NO_FIGURE,
        fmt.number(row["global_batch_size"]),
        fmt.number(row["epochs"]),
        fmt.as_published(row["train_seconds"]),
        fmt.as_published(row["examples_per_second"]),
        Cell(accuracy, (mistakes,)),
        "",
        "published elsewhere",
    ]


def accuracy(row: Run) -> Cell:
    """The test accuracy, with the other figures of the same model."""
    figures = [row[name] for name in ("val_tta_accuracy", "validation_accuracy", "validation_tta_accuracy")]
    views, validation, both = (fmt.percent(figure, 2).strip(NO_FIGURE) for figure in figures)
    notes = [
        ranking_figure(row) if results_of(row["problem"]).ranking.metric == "val_loss" else "",
        f"{views} with TTA" if views else "",
        f"validation {validation}{f' ({both} with TTA)' if both else ''}" if validation else "",
        counted(row),
    ]
    return Cell(fmt.percent(row["val_accuracy"], 2), tuple(filter(None, notes)))


def repeated(scenario: Run) -> str:
    """Whether the weights were the same when the runs of a row were trained again, as far as it was tried."""
    seen = [one["is_identical"] for one in scenario["repetitions"] if one]
    if not seen:
        return "not repeated" if scenario["deterministic"] == "true" else NO_FIGURE
    alike, runs = sum(seen), len(scenario["repetitions"])
    if alike < len(seen):
        return "differs" if runs == 1 else f"differs: {len(seen) - alike} of {runs} runs"
    return "bit-identical" if alike == runs else f"bit-identical: {alike} of {runs} runs, the others not repeated"


def ranking_figure(one: Run) -> str:
    """The figure that ranks a run or a row, with its unit. Empty if it is missing."""
    results = results_of(one["problem"])
    by = results.ranking.metric
    text = f"{fmt.number(one[by], 3)} {results.loss_unit}" if by == "val_loss" else fmt.percent(one[by], 2)
    return "" if text.startswith(NO_FIGURE) else text


def counted(row: Run) -> str:
    """The number of mistakes if there are few, or the standard error of the accuracy if there are few images.

    It is the error of these images and no others; it says nothing about other seeds. The error of predictions that
    depend on each other is not known, so their number is stated.
    """
    figure, test_examples = row["val_accuracy"], row["test_examples"]
    mean = figure["mean"]
    if mean is None or not test_examples or not 0 <= mean <= 1:
        return ""
    if mean >= _FEW_WRONG:
        return _wrong(fmt.number({**figure, "mean": 1 - mean}, scale=test_examples), test_examples)
    so_many = f"{fmt.number(test_examples)} {units_of_run(row).many}"
    if results_of(row["problem"]).ranking.predictions_per_draw > 1:
        return so_many
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {fmt.number(100 * error, 1)} points ({so_many})" if error >= _MUCH else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {fmt.number(test_examples)} wrong" if test_examples else f"{count} wrong"
