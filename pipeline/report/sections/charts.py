"""Sections with a chart: curves of the runs, times by batch, and figures over time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Chart, Facts, Group, Section, Table, Text, figures, words
from pipeline.report.data.changes import change_words
from pipeline.report.data.experiments import have_curves
from pipeline.report.data.scenarios import has_times
from pipeline.report.formats import NO_FIGURE, Run
from pipeline.report.report import Report
from pipeline.runs.record import SKIPPED

_NO_TIMES = (
    "No epoch or step times: each run compiled the model in every epoch it trained, and those are left out. Train for "
    "two epochs or more."
)


def curves(report: Report) -> Iterator[Section]:
    """Accuracy and loss by epoch, or the final figures if each run has one epoch."""
    drawn = report.drawn()
    legend = [(fmt.run_name(run, report.current), _final_figures(run)) for run in drawn]
    if not have_curves(drawn):
        yield Section("ends", "At the end of training", [Facts(legend)])
        return
    current = {run["experiment"] for run in report.requested()}
    total = sum(run["status"] != SKIPPED for run in report.runs if not current or run["experiment"] in current)
    num_drawn = min(len(drawn), drawings.MAX_LINES)
    some = f" Initially drawn: {num_drawn} of {total} runs, the requested ones first, then the newest."
    chart = Chart(
        "Accuracy and loss by epoch, training and test",
        partial(drawings.plot_curves, drawn),
        note=f"Solid lines with marks: test. Dashed lines: training.{some if num_drawn < total else ''}",
        legend=legend,
        num_drawn=num_drawn,
    )
    yield Section("curves", "Accuracy and loss by epoch", [chart])


def _final_figures(run: Run) -> str:
    """Accuracies and losses of the epoch whose weights were kept."""
    last = next((row for row in run["curves"] if row["epoch"] == run["kept_epoch"]), run["curves"][-1])
    reached = f"test accuracy {fmt.percent(last['val_accuracy'])} (training {fmt.percent(last['accuracy'])})"
    loss = f"test loss {fmt.number(last['val_loss'], 3)} (training {fmt.number(last['loss'], 3)})"
    return f"after epoch {fmt.number(last['epoch'])} {reached}, {loss}"


def times_by_batch(report: Report) -> Iterator[Section]:
    """Times of an epoch and of a step by global batch, for the requested experiments."""
    current = {one["experiment"] for one in report.experiments if one["is_current"]}
    shown = [table for table in report.batch_sizes if not current or table["experiment"] in current]
    for place, table in enumerate(shown, start=1):
        name = f"{fmt.model_and_recipe(table)}, {fmt.plural(table['epochs'], 'epoch')}, {fmt.computed_in(table)}"
        blocks = _times(table, name) if has_times(table) else [Text(_NO_TIMES)]
        yield Section(f"batches-{place}", f"Time by batch: {name}", blocks)


def _times(table: Run, name: str) -> list[Block]:
    example = units_of_run(table).examples.removesuffix("s")
    count = Counter(map(_line_name, table["lines"]))
    # Other code or libraries make another line of the same name.
    dates = [fmt.moment(line["finished_at"]) if count[_line_name(line)] > 1 else "" for line in table["lines"]]
    ours = [
        Group(fmt.joined(_line_name(line), date), [_point(point) for point in line["points"]])
        for line, date in zip(table["lines"], dates, strict=True)
    ]
    others = [
        Group(
            f"{fmt.plain(line['effective_device'])}, published elsewhere: {fmt.plain(line['source'], 200)}",
            [_published_point(point) for point in line["points"]],
        )
        for line in table["published"]
    ]
    drawn = ours[: drawings.MAX_LINES]
    more = f"Drawn are the first {len(drawn)} of {len(ours)} devices." if len(ours) > len(drawn) else ""
    return [
        Table(
            figures("batch", "epoch, s", "step, ms", f"{example}, µs", "runs"),
            groups=[*ours, *others],
            label=f"Time by batch: {name}",
            caption="Training seconds of an epoch and milliseconds of a step, compiling epochs left out.",
            style="batches",
        ),
        Chart(
            f"Epoch time and step time by global batch, {name}",
            partial(drawings.plot_batch_sizes, table["lines"][: drawings.MAX_LINES]),
            [f"{line.title}: {', '.join(map(_in_words, line.rows))}" for line in drawn],
            note=more,
            legend=[(line.title, "") for line in drawn],
            has_table=True,
        ),
    ]


def _point(point: Mapping[str, Any]) -> list[str]:
    """The cells of a batch that was measured here."""
    batch, step = point["global_batch_size"], point["step_seconds"]
    return [
        fmt.number(batch),
        fmt.number(point["epoch_seconds"], 2),
        fmt.number(step, 2, scale=1e3),
        fmt.number(step, 1, scale=1e6 / max(1, batch)),
        fmt.number(len(point["seeds"])),
    ]


def _in_words(cells: Sequence[str]) -> str:
    return f"batch {cells[0]}: {cells[1]} s, {cells[2]} ms"


def _published_point(point: Mapping[str, Any]) -> list[str]:
    """The cells of a batch whose times were published elsewhere."""
    epoch, example = (fmt.as_published(point[name]) for name in ("epoch_seconds", "microseconds_per_example"))
    return [fmt.number(point["global_batch_size"]), epoch, NO_FIGURE, example, NO_FIGURE]


def _line_name(line: Run) -> str:
    """The device, host and reasons for care of a line that was measured here."""
    care = [*fmt.remarks(line), "" if line["device_verified"] else "device not verified"]
    where = f"{fmt.named_device(line)} on {fmt.hosts(line['hostnames'])}"
    return fmt.joined(where, f"requested {fmt.plain(line['requested_device'])}", *care)


def history(report: Report) -> Iterator[Section]:
    """Changes since the last comparable runs, and figures of all runs of this storage root by date."""
    groups = [group for group in report.history if len(group["points"]) > 1][: drawings.MAX_LINES]
    if not groups:
        return
    names = [group_name(group) for group in groups]
    ends = [[fmt.percent(group["points"][place]["val_accuracy"]) for place in (0, -1)] for group in groups]
    note = "Every run reported under this root, by groups of comparable runs; lines join runs of the same seed."
    chart = Chart(
        "Test accuracy and throughput of every run reported here, by date",
        partial(drawings.plot_history, groups),
        [f"{name}: from {first} to {last}" for name, (first, last) in zip(names, ends, strict=True)],
        note=f"{note} {fmt.left_out(len(report.history) - len(groups), 'more group')}".strip(),
        legend=[(name, fmt.plural(len(group["points"]), "run")) for name, group in zip(names, groups, strict=True)],
    )
    yield Section("history", "History", [change_table(report), chart])


def change_table(report: Report) -> Table:
    """The changes of accuracy and throughput since the last comparable runs."""
    columns = [*words("comparable runs", "figure"), *figures("before", "now", "change"), *words("verdict")]
    shown = (("val_accuracy", fmt.percent, fmt.points), ("examples_per_second", fmt.number, fmt.signed))
    rows = [
        (
            group_name(change),
            "test accuracy" if name == "val_accuracy" else units_of_run(change).rate,
            show(change[name]["baseline"]),
            show(change[name]["value"]),
            show_change(change[name]["change"]),
            change_words(change[name]),
        )
        for change in report.changes
        for name, show, show_change in shown
    ]
    return Table(columns, rows, label="Changes since the last comparable runs", style="changes-table")


def group_name(group: Run) -> str:
    """The facts that the runs of a group share."""
    where = f"{fmt.plain(group['effective_device'])} ({fmt.device_note(group) or 'unknown'})"
    batch, epochs = fmt.number(group["global_batch_size"]), fmt.plural(group["epochs"], "epoch")
    how = f"batch {batch}, {epochs}, {fmt.computed_in(group)}"
    return f"{fmt.model_and_recipe(group)} on {fmt.plain(group['dataset'])}, {how}, {where}"
