"""Sections with a chart of curves, times by batch size, or metrics by date."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Chart, Facts, Group, Section, Table, Text, numbers, words
from pipeline.report.data.changes import describe_change
from pipeline.report.data.published import PublishedLine, PublishedRow
from pipeline.report.data.reading import Entry, Run
from pipeline.report.data.scenarios import BatchLine, BatchTable, Row
from pipeline.report.formats import MISSING
from pipeline.report.report import Report
from pipeline.runs.record import SKIPPED

_NO_TIMES = (
    "No epoch or step times. Each run compiled the model in every epoch, and compiling epochs are excluded. Train for "
    "at least two epochs."
)


def curves(report: Report) -> Iterator[Section]:
    """Yield accuracy and loss by epoch, or the final metrics if each run has one epoch."""
    drawn = report.drawn()
    legend = [(fmt.run_name(run, report.current), _final_metrics(run)) for run in drawn]
    if not report.has_curves():
        yield Section("ends", "At the end of training", [Facts(legend)])
        return
    current = {run.experiment for run in report.requested()}
    total = sum(run.status != SKIPPED for run in report.runs if not current or run.experiment in current)
    num_drawn = min(len(drawn), drawings.MAX_LINES)
    selection = f" Drawn at first are {num_drawn} of {total} runs, requested runs first, then the newest."
    chart = Chart(
        "Accuracy and loss by epoch, training and test",
        partial(drawings.plot_curves, drawn),
        note=f"Solid lines show test, dashed lines training.{selection if num_drawn < total else ''}",
        legend=legend,
        num_drawn=num_drawn,
    )
    yield Section("curves", "Accuracy and loss by epoch", [chart])


def _final_metrics(run: Run) -> str:
    """Return accuracies and losses of the epoch with the selected weights."""
    selected = next((row for row in run.curves if row.epoch == run.kept_epoch), run.curves[-1])
    accuracy = f"test accuracy {fmt.percent(selected.test_accuracy)} (training {fmt.percent(selected.accuracy)})"
    loss = f"test loss {fmt.number(selected.test_loss, 3)} (training {fmt.number(selected.loss, 3)})"
    return f"after epoch {fmt.number(selected.epoch)} {accuracy}, {loss}"


def times_by_batch(report: Report) -> Iterator[Section]:
    """Yield times of an epoch and of a step by global batch size, for the requested experiments."""
    current = {experiment.name for experiment in report.experiments if experiment.is_current}
    tables = [table for table in report.batch_sizes if not current or table.run.experiment in current]
    for index, table in enumerate(tables, start=1):
        run = table.run
        # The lines of a table may differ in their backend.
        name = f"{fmt.model_and_recipe(run)}, {fmt.plural(run.epochs, 'epoch')}, {fmt.plain(run.precision)}"
        blocks = _times(table, report.published_by_batch(table), name) if table.has_times else [Text(_NO_TIMES)]
        yield Section(f"batches-{index}", f"Time by batch: {name}", blocks)


def _times(table: BatchTable, published: Sequence[PublishedLine], name: str) -> list[Block]:
    example = table.run.units.examples.removesuffix("s")
    count = Counter(map(_line_name, table.lines))
    # Different code or libraries make separate lines with the same name.
    dates = [fmt.moment(line.run.finished_at) if count[_line_name(line)] > 1 else "" for line in table.lines]
    groups = [
        Group(fmt.joined(_line_name(line), date), [_point(row) for row in line.by_batch])
        for line, date in zip(table.lines, dates, strict=True)
    ]
    published_groups = [
        Group(
            f"{fmt.plain(line.rows[0].effective_device)}, published elsewhere: {fmt.plain(line.rows[0].source, 200)}",
            [_published_point(row) for row in line.by_batch],
        )
        for line in published
    ]
    drawn = groups[: drawings.MAX_LINES]
    note = f"The chart shows the first {len(drawn)} of {len(groups)} devices." if len(groups) > len(drawn) else ""
    return [
        Table(
            numbers("batch", "epoch, s", "step, ms", f"{example}, µs", "runs"),
            groups=[*groups, *published_groups],
            label=f"Time by batch: {name}",
            caption="Training seconds per epoch and milliseconds per step, without compiling epochs.",
            style="batches",
        ),
        Chart(
            f"Epoch time and step time by global batch, {name}",
            partial(drawings.plot_batch_sizes, table.lines[: drawings.MAX_LINES]),
            [f"{line.title}: {', '.join(map(_in_words, line.rows))}" for line in drawn],
            note=note,
            legend=[(line.title, "") for line in drawn],
            has_table=True,
        ),
    ]


def _point(row: Row) -> list[str]:
    """Return the cells of a measured batch size."""
    batch, step = row.run.global_batch_size, row.step_seconds
    return [
        fmt.number(batch),
        fmt.number(row.epoch_seconds, 2),
        fmt.number(step, 2, scale=1e3),
        fmt.number(step, 1, scale=1e6 / max(1, batch)),
        fmt.number(len(row.seeds)),
    ]


def _in_words(cells: Sequence[str]) -> str:
    return f"batch {cells[0]}: {cells[1]} s, {cells[2]} ms"


def _published_point(row: PublishedRow) -> list[str]:
    """Return the cells of a published batch size."""
    epoch, example = fmt.as_published(row.epoch_seconds), fmt.as_published(row.microseconds_per_example)
    return [fmt.number(row.global_batch_size), epoch, MISSING, example, MISSING]


def _line_name(line: BatchLine) -> str:
    """Return device, host and reasons for caution of a measured line."""
    run = line.run
    remarks = [*fmt.remarks(run), "" if run.device_verified else "device not verified"]
    device = f"{fmt.named_device(run)} on {fmt.hosts(line.hostnames)}"
    backend = "by JAX" if run.backend == "jax" else ""
    return fmt.joined(device, backend, f"requested {fmt.plain(run.requested_device)}", *remarks)


def history(report: Report) -> Iterator[Section]:
    """Yield changes since the last comparable runs, and metrics of all runs of this storage root by date."""
    groups = [group for group in report.history if len(group.entries) > 1][: drawings.MAX_LINES]
    if not groups:
        return
    names = [group_name(group.entries[0]) for group in groups]
    endpoints = [[fmt.percent(group.entries[index].test_accuracy) for index in (0, -1)] for group in groups]
    note = "All runs reported under this root, in groups of comparable runs. Lines connect runs of the same seed."
    chart = Chart(
        "Test accuracy and throughput of every run reported here, by date",
        partial(drawings.plot_history, groups),
        [f"{name}: from {first} to {last}" for name, (first, last) in zip(names, endpoints, strict=True)],
        note=f"{note} {fmt.left_out(len(report.history) - len(groups), 'more group')}".strip(),
        legend=[(name, fmt.plural(len(group.entries), "run")) for name, group in zip(names, groups, strict=True)],
    )
    yield Section("history", "History", [change_table(report), chart])


def change_table(report: Report) -> Table:
    """Return the changes of accuracy and throughput since the last comparable runs."""
    columns = [*words("comparable runs", "metric"), *numbers("before", "now", "change"), *words("verdict")]
    rows = []
    for change in report.changes:
        run, accuracy, rate = change.runs[0], change.test_accuracy, change.examples_per_second
        for title, metric, show, show_change in (
            ("test accuracy", accuracy, fmt.percent, fmt.points),
            (run.units.rate, rate, fmt.number, fmt.signed),
        ):
            before, now, difference = show(metric.baseline), show(metric.value), show_change(metric.change)
            rows.append((group_name(run), title, before, now, difference, describe_change(metric)))
    return Table(columns, rows, label="Changes since the last comparable runs", style="changes-table")


def group_name(run: Entry) -> str:
    """Return the facts that the runs of a group share."""
    device = f"{fmt.plain(run.effective_device)} ({fmt.devices(run) or 'unknown'})"
    setup = f"batch {fmt.number(run.global_batch_size)}, {fmt.plural(run.epochs, 'epoch')}, {fmt.computed_in(run)}"
    return f"{fmt.model_and_recipe(run)} on {fmt.plain(run.dataset)}, {setup}, {device}"
