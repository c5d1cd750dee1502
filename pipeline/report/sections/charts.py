"""Sections with a chart: curves of the runs, times by batch, and figures over time."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Chart, Column, Group, Section, Table, Text
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
    if not drawn:
        return
    legend = [(fmt.run_name(run, report.current), _final_figures(run)) for run in drawn]
    if not have_curves(drawn):
        yield Section("ends", "At the end of training", [Text(note, lead=name, kind="-") for name, note in legend])
        return
    num_drawn = min(len(drawn), drawings.MAX_LINES)
    chart = Chart(
        "Accuracy and loss by epoch, training and test",
        lambda text: drawings.draw_curves(drawn, alternative_text=text),
        [f"{name}: {final}" for name, final in legend[:num_drawn]],
        note=f"Solid lines with marks: test. Dashed lines: training. {_drawn_note(report, num_drawn)}".strip(),
        legend=legend,
        is_chosen=True,
        num_drawn=num_drawn,
    )
    yield Section("curves", "Accuracy and loss by epoch", [chart])


def _final_figures(run: Run) -> str:
    """Accuracies and losses of the epoch whose weights were kept."""
    last = next((row for row in run["curves"] if row["epoch"] == run["kept_epoch"]), run["curves"][-1])
    reached = f"test accuracy {fmt.percent(last['val_accuracy'])} (training {fmt.percent(last['accuracy'])})"
    loss = f"test loss {fmt.number(last['val_loss'], 3)} (training {fmt.number(last['loss'], 3)})"
    return f"after epoch {fmt.number(last['epoch'])} {reached}, {loss}"


def _drawn_note(report: Report, num_drawn: int) -> str:
    current = {run["experiment"] for run in report.requested()}
    total = sum(run["status"] != SKIPPED for run in report.runs if not current or run["experiment"] in current)
    if num_drawn >= total:
        return ""
    return f"Initially drawn: {num_drawn} of {total} runs, the requested ones first, then the newest."


def times_by_batch(report: Report) -> Iterator[Section]:
    """Times of an epoch and of a step by global batch, for the requested experiments."""
    current = {one["experiment"] for one in report.experiments if one["is_current"]}
    shown = [table for table in report.batch_sizes if not current or table["experiment"] in current]
    for place, table in enumerate(shown, start=1):
        name = f"{fmt.model_and_recipe(table)}, {fmt.plural(table['epochs'], 'epoch')}, {fmt.computed_in(table)}"
        blocks = [_batch_table(table, name), _batch_chart(table, name)] if has_times(table) else [Text(_NO_TIMES)]
        yield Section(f"batches-{place}", f"Time by batch: {name}", blocks)


def _batch_table(table: Run, name: str) -> Table:
    example = units_of_run(table).examples.removesuffix("s")
    columns = (
        Column("batch", lambda point: fmt.number(point["global_batch_size"]), True),
        Column("epoch, s", lambda point: _seconds(point["epoch_seconds"]), True),
        Column("step, ms", lambda point: _seconds(point.get("step_seconds"), 1e3), True),
        Column(f"{example}, µs", _microseconds, True),
        Column("runs", lambda point: fmt.number(len(point["seeds"])) if "seeds" in point else NO_FIGURE, True),
    )
    ours = [Group(line, points) for line, points in _lines(table)]
    others = [
        Group(
            f"{fmt.plain(line['effective_device'])}, published elsewhere: {fmt.plain(line['source'], 200)}",
            line["points"],
        )
        for line in table["published"]
    ]
    caption = "Training seconds of an epoch and milliseconds of a step, compiling epochs left out."
    return Table(columns, groups=[*ours, *others], label=f"Time by batch: {name}", caption=caption, style="batches")


def _seconds(figure: Mapping[str, float | None] | float | None, scale: float = 1.0) -> str:
    if not isinstance(figure, Mapping):
        return fmt.as_published(figure)
    return fmt.mean_number(_scaled(figure, scale), 2)


def _microseconds(point: Mapping[str, Any]) -> str:
    if "step_seconds" not in point:
        return fmt.as_published(point["microseconds_per_example"])
    return fmt.mean_number(_scaled(point["step_seconds"], 1e6 / max(1, point["global_batch_size"])), 1)


def _scaled(figure: Mapping[str, float | None], factor: float) -> dict[str, float | None]:
    return {name: None if seconds is None else factor * seconds for name, seconds in figure.items()}


def _batch_chart(table: Run, name: str) -> Chart:
    drawn = _lines(table)[: drawings.MAX_LINES]
    data = []
    for line, batches in drawn:
        times = ", ".join(
            f"batch {fmt.number(point['global_batch_size'])}: {_seconds(point['epoch_seconds'])} s, "
            f"{_seconds(point['step_seconds'], 1e3)} ms"
            for point in batches
        )
        data.append(f"{line}: {times}")
    more = len(table["lines"]) > len(drawn)
    return Chart(
        f"Epoch time and step time by global batch, {name}",
        lambda text: drawings.draw_batch_sizes(table["lines"][: drawings.MAX_LINES], alternative_text=text),
        data,
        note=f"Drawn are the first {len(drawn)} of {len(table['lines'])} devices." if more else "",
        legend=[(line, "") for line, _ in drawn],
        has_table=True,
    )


def _lines(table: Run) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    """The lines that were measured here, by device, host and reasons for care."""
    named = []
    for line in table["lines"]:
        care = [*fmt.remarks(line), *([] if line["device_verified"] else ["device not verified"])]
        where = f"{fmt.named_device(line)} on {fmt.hosts(line['hostnames'])}"
        named.append(fmt.joined(where, f"requested {fmt.plain(line['requested_device'])}", *care))
    count = Counter(named)
    # Other code or libraries make another line of the same name.
    return [
        (f"{name}, {fmt.moment(line['finished_at'])}" if count[name] > 1 else name, line["points"])
        for name, line in zip(named, table["lines"], strict=True)
    ]


def history(report: Report) -> Iterator[Section]:
    """Changes since the last comparable runs, and figures of all runs of this storage root by date."""
    groups = [group for group in report.history if len(group["points"]) > 1][: drawings.MAX_LINES]
    if not groups:
        return
    names = [group_name(group) for group in groups]
    ends = [
        f"{name}: from " + " to ".join(fmt.percent(group["points"][place]["val_accuracy"]) for place in (0, -1))
        for name, group in zip(names, groups, strict=True)
    ]
    note = "Every run reported under this root, by groups of comparable runs; lines join runs of the same seed."
    chart = Chart(
        "Test accuracy and throughput of every run reported here, by date",
        lambda text: drawings.draw_history(groups, alternative_text=text),
        ends,
        note=f"{note} {fmt.left_out(len(report.history) - len(groups), 'more group')}".strip(),
        legend=[(name, fmt.plural(len(group["points"]), "run")) for name, group in zip(names, groups, strict=True)],
    )
    changed = change_table(report)
    yield Section("history", "History", [*([changed] if changed.rows else []), chart])


def change_table(report: Report) -> Table:
    """The changes of accuracy and throughput since the last comparable runs."""
    columns = (
        Column("comparable runs", lambda row: group_name(row[0])),
        Column("figure", lambda row: row[1]),
        Column("before", lambda row: row[3](row[2]["baseline"]), True),
        Column("now", lambda row: row[3](row[2]["value"]), True),
        Column("change", lambda row: row[4](row[2]["change"]), True),
        Column("verdict", lambda row: change_words(row[2])),
    )
    rows = [
        row
        for change in report.changes
        for row in (
            (change, "test accuracy", change["val_accuracy"], fmt.percent, fmt.points),
            (change, units_of_run(change).rate, change["examples_per_second"], fmt.number, fmt.signed),
        )
    ]
    return Table(columns, rows, label="Changes since the last comparable runs", style="changes-table")


def group_name(group: Run) -> str:
    """The facts that the runs of a group share."""
    where = f"{fmt.plain(group['effective_device'])} ({fmt.device_note(group) or 'unknown'})"
    batch, epochs = fmt.number(group["global_batch_size"]), fmt.plural(group["epochs"], "epoch")
    how = f"batch {batch}, {epochs}, {fmt.computed_in(group)}"
    return f"{fmt.model_and_recipe(group)} on {fmt.plain(group['dataset'])}, {how}, {where}"
