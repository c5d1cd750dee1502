"""Scoreboards: a line for each experiment, and a table of its runs beside published figures."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.problems.judged import judged
from pipeline.problems.units import units_of_all, units_of_run
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Column, Group, Section, Table, Text
from pipeline.report.data.changes import change_words
from pipeline.report.data.experiments import have_curves, series_of
from pipeline.report.formats import NO_FIGURE, Run
from pipeline.report.report import Report

# From this accuracy on mistakes are counted.
_FEW_WRONG = 0.95
# A smaller standard error is not stated. That of CIFAR-10's 10,000 images is smaller.
_MUCH = 0.005
_WITH_VIEWS = "with TTA"


def overview(report: Report) -> Iterator[Section]:
    """A line for each experiment, if there are several."""
    columns = (
        Column("experiment", lambda row: fmt.plain(row["experiment"])),
        Column("best on the test split", lambda row: ranking_figure(row["best"]) if row["best"] else NO_FIGURE),
        Column("by", lambda row: _by(row["best"])),
        Column("newest", lambda row: _newest(row["newest"])),
        Column("change", lambda row: _change(row["change"])),
        Column("training time, s", lambda row: _best_seconds(row["best"])),
        Column("hardware", lambda row: _hardware(row["best"])),
    )
    rows = [
        {
            **one,
            "best": next((row for row in report.scenarios if row["fingerprints"][0] == one["best"]), None),
            "newest": next((run for run in report.runs if run["fingerprint"] == one["newest"]), None),
        }
        for one in report.experiments
    ]
    label = "Experiments: the best row, the newest run, its change, and the time and hardware of the best"
    table = Table(columns, rows, label=label, style="overview")
    yield Section("overview", "Experiments", [table] if len(rows) > 1 else [])


def _by(best: Run | None) -> str:
    return f"{fmt.model_and_recipe(best)}, {fmt.plural(len(best['seeds']), 'run')}" if best else NO_FIGURE


def _newest(run: Run | None) -> str:
    return f"{ranking_figure(run) or NO_FIGURE}, {fmt.moment(run['finished_at'])}" if run else NO_FIGURE


def _best_seconds(best: Run | None) -> str:
    return fmt.mean_number(best["train_seconds"], 2) if best else NO_FIGURE


def _hardware(best: Run | None) -> str:
    return f"{fmt.device_phrase(best)}, {fmt.computed_in(best)}" if best else NO_FIGURE


def _change(change: Run | None) -> str:
    if change is None or not change["earlier"]:
        return "no earlier run"
    figure = change["val_accuracy"]
    # Beside a loss it would be taken for a change of the loss.
    what = "" if judged(change["problem"]).figure == "val_accuracy" else "accuracy "
    return f"{what}{fmt.points(figure['change'])}, {change_words(figure)}"


def scoreboards(report: Report) -> Iterator[Section]:
    """A scoreboard for each experiment. Those of other experiments than the requested ones are folded."""
    if not report.experiments:
        yield Section("scoreboard", "Scoreboard", [Text("No run has finished yet.")])
    several = len(report.experiments) > 1
    for place, one in enumerate(report.experiments):
        table = scoreboard(report, one["experiment"])
        blocks: list[Block] = [table]
        if place and not one["is_current"]:
            summary = f"{fmt.plural(len(table.rows), 'row')} of other runs under this root"
            blocks = [Box("fold", [table], summary=summary)]
        title = f"Scoreboard: {fmt.plain(one['experiment'])}" if several else "Scoreboard"
        yield Section("scoreboard" if place == 0 else f"scoreboard-{place + 1}", title, blocks)


def scoreboard(report: Report, experiment: str) -> Table:
    """The rows of an experiment, newest first, and below them the figures that were published elsewhere."""
    drawn = report.drawn()
    curves = have_curves(drawn)
    rows = [
        {
            **row,
            "mark": fmt.mark(row["fingerprints"], report.current),
            "series": series_of(row, drawn) if curves else [],
        }
        for row in report.scenarios
        if row["experiment"] == experiment
    ]
    published = published_groups(report, experiment)
    below = ", and below them figures that were published elsewhere" if published else ""
    caption = (
        f"Runs of this project, the newest first. Runs that differ in their seed alone are one row (mean ± standard "
        f"deviation){below}.{' A tick draws the curves of a row below.' if curves else ''}"
    )
    tall = " tall" if len(rows) > 20 else ""
    return Table(
        columns(units_of_all(rows).rate),
        rows,
        published,
        label=f"Scoreboard: {fmt.plain(experiment)}",
        caption=caption,
        style=f"scoreboard sortable{tall}",
        is_current=lambda row: bool(row.get("mark")),
    )


def columns(rate: str) -> Sequence[Column]:
    """The columns of a scoreboard whose throughput has this unit. They take rows of ours and published ones."""
    return (
        Column("run", _run),
        Column("requested → effective device", _device),
        Column("device verified", _verified),
        Column("data, verified", _data),
        Column("precision", _precision),
        Column("batch", lambda row: fmt.number(row["global_batch_size"]), True),
        Column("epochs", lambda row: fmt.number(row["epochs"]), True),
        Column("training time, s", _figure("train_seconds", 2), True),
        Column(rate, _figure("examples_per_second", 0), True),
        Column("test accuracy", accuracy, True, "strong"),
        Column("repeated", _repeated),
        Column("speed-up, or why none", _speedup),
    )


def is_published(row: Mapping[str, Any]) -> bool:
    """Whether a row was published elsewhere."""
    return "scenario" in row


def _run(row: Mapping[str, Any]) -> Cell:
    if is_published(row):
        return Cell(text=fmt.plain(row["scenario"]), notes=("published elsewhere", *further(row)))
    seeds = ", ".join(map(fmt.number, row["seeds"]))
    several = len(row["seeds"]) > 1
    which = fmt.plain(f"seeds {seeds}") if several else f"seed {seeds}, {fmt.plain(row['fingerprints'][0])[:8]}"
    runs = fmt.plural(len(row["seeds"]), "run") if several else ""
    return Cell(
        text=fmt.model_and_recipe(row),
        notes=tuple(filter(None, [runs, fmt.inputs(row), which, fmt.moment(row["finished_at"])])),
        tags=tuple(filter(None, [row.get("mark", "")])),
        alarms=fmt.remarks(row),
        series=row.get("series", ()),
    )


def further(row: Mapping[str, Any]) -> Iterator[str]:
    """Published figures and words without a column."""
    if row["epoch_seconds"]:
        yield f"an epoch {fmt.as_published(row['epoch_seconds'])} s"
    if row["microseconds_per_example"]:
        yield f"an image {fmt.as_published(row['microseconds_per_example'])} µs"
    if row["val_loss"] is not None:
        yield f"loss {fmt.as_published(row['val_loss'])}"
    yield from map(fmt.plain, row["details"])


def _device(row: Mapping[str, Any]) -> Cell:
    asked, used = fmt.plain(row["requested_device"]), fmt.plain(row["effective_device"])
    text = f"{asked} → {used}"
    if is_published(row):
        return Cell(text=text, notes=[note] if (note := fmt.plain(row["device_note"])) else ())
    host = f"on {fmt.hosts(row['hostnames'])}" if any(row["hostnames"]) else ""
    return Cell(
        text=text, notes=tuple(filter(None, [fmt.device_note(row), host])), needs_care=asked not in ("auto", used)
    )


def _verified(row: Mapping[str, Any]) -> Cell:
    words = "not here" if is_published(row) else fmt.verified_words(fmt.verified_as(row))
    return Cell(text=words, needs_care=words == "no" or words.startswith("yes,"))


def _data(row: Mapping[str, Any]) -> Cell:
    if is_published(row):
        return Cell(text=fmt.plain(row["datasets"][0]), notes=("verified: not here",))
    verified = fmt.data_verified(row)
    return Cell(text=fmt.plain(row["dataset"]), notes=(f"verified: {verified}",), needs_care=verified == "no")


def _precision(row: Mapping[str, Any]) -> str:
    if is_published(row):
        return NO_FIGURE
    asked = fmt.plain(row["requested_precision"])
    return fmt.computed_in(row) if asked in ("auto", row["precision"]) else f"{asked} → {fmt.computed_in(row)}"


def _figure(name: str, decimals: int) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: fmt.as_published(row[name]) if is_published(row) else fmt.mean_number(row[name], decimals)


def accuracy(row: Mapping[str, Any]) -> Cell:
    """The test accuracy, with the other figures of the same model."""
    if not is_published(row):
        beside = loss_in_nats(row), with_views(row), _validation_accuracy(row), counted(row)
        return Cell(text=fmt.mean_percent(row["val_accuracy"], 2), notes=tuple(filter(None, beside)))
    figure = row["val_accuracy"]
    text = NO_FIGURE if figure is None else f"{fmt.as_published(100 * figure)} %"
    return Cell(
        text=text, notes=() if row["wrong"] is None else [_wrong(fmt.number(row["wrong"]), row["test_examples"])]
    )


def _repeated(row: Mapping[str, Any]) -> Cell:
    text = "" if is_published(row) else repeated(row)
    return Cell(text=text, needs_care=text.startswith("differs"))


def repeated(scenario: Run) -> str:
    """Whether the weights were the same when the runs of a row were trained again, as far as it was tried."""
    seen = [one["is_identical"] for one in scenario["repetitions"] if one]
    if not seen:
        return "not repeated" if scenario["deterministic"] == "true" else NO_FIGURE
    alike, runs = sum(seen), len(scenario["repetitions"])
    if alike < len(seen):
        return "differs" if runs == 1 else f"differs: {len(seen) - alike} of {runs} runs"
    return "bit-identical" if alike == runs else f"bit-identical: {alike} of {runs} runs, the others not repeated"


def loss_in_nats(scenario: Run) -> str:
    """The test loss of a text, by which it is ranked."""
    return ranking_figure(scenario) if judged(scenario["problem"]).figure == "val_loss" else ""


def ranking_figure(one: Run) -> str:
    """The figure that ranks a run or a row, with its unit. Empty if it is missing."""
    by = judged(one["problem"]).figure
    figure = one[by] if isinstance(one[by], Mapping) else {"mean": one[by], "deviation": None}
    if figure["mean"] is None:
        return ""
    return f"{fmt.mean_number(figure, 3)} nats" if by == "val_loss" else fmt.mean_percent(figure, 2)


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
        wrong = {name: None if part is None else part * test_examples for name, part in figure.items()}
        return _wrong(fmt.mean_number({**wrong, "mean": test_examples - wrong["mean"]}), test_examples)
    so_many = f"{fmt.number(test_examples)} {units_of_run(row).many}"
    if judged(row["problem"]).predictions_per_draw > 1:
        return so_many
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {fmt.number(100 * error, 1)} points ({so_many})" if error >= _MUCH else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {fmt.number(test_examples)} wrong" if test_examples else f"{count} wrong"


def with_views(scenario: Run) -> str:
    """The test accuracy with test-time augmentation. Empty if it was not requested."""
    figure = scenario.get("val_tta_accuracy")
    return "" if figure is None or figure["mean"] is None else f"{fmt.mean_percent(figure, 2)} {_WITH_VIEWS}"


def _validation_accuracy(scenario: Run) -> str:
    figure = scenario.get("validation_accuracy")
    if figure is None or figure["mean"] is None:
        return ""
    several = scenario.get("validation_tta_accuracy")
    also = f" ({fmt.mean_percent(several, 2)} {_WITH_VIEWS})" if several and several["mean"] is not None else ""
    return f"validation {fmt.mean_percent(figure, 2)}{also}"


def _speedup(row: Mapping[str, Any]) -> str:
    if is_published(row):
        return "published elsewhere"
    speedup = row["speedup"]
    return speedup["words"] if speedup["ratio"] is None else f"{fmt.number(speedup['ratio'], 2)} × {speedup['words']}"


def published_groups(report: Report, experiment: str) -> list[Group]:
    """The rows about an experiment that were published elsewhere, by source."""
    sources: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for row in report.published:
        if row["experiment"] == experiment:
            sources.setdefault((row["source"], tuple(row["unsaid"])), []).append(row)
    return [
        Group(
            "Published elsewhere, not measured here",
            rows,
            notes=(fmt.plain(title, 300), *([_unsaid(unsaid)] if unsaid else [])),
            is_aside=True,
        )
        for (title, unsaid), rows in sources.items()
    ]


def _unsaid(unsaid: Sequence[str]) -> str:
    return fmt.sentence(f"Unsaid: {'; '.join(fmt.plain(one, 200) for one in unsaid)}")
