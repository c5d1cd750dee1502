"""Sections with charts of metrics by epoch, training time, setting or date."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pipeline.problems.units import common_units
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Chart, Facts, Section, Table, numbers, words
from pipeline.report.data.changes import describe_change
from pipeline.report.data.experiments import has_other_data, ranked
from pipeline.report.data.history import age_order
from pipeline.report.data.reading import Entry, Run
from pipeline.report.data.scenarios import Row, differing, field_label
from pipeline.report.drawings import Sweep
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import setting_word
from pipeline.runs.record import SKIPPED, names

# Settings that the device, the backend and the precision that were used replace.
_REQUESTED = ("requested_device", "requested_backend", "requested_precision")
_MAX_SWEEPS = 8


def curves(report: Report) -> Iterator[Section]:
    """Yield accuracy and loss by epoch, or the final metrics if each run has one epoch."""
    drawn = report.drawn()
    metrics = [*map(_final_metrics, drawn)]
    run_names = [fmt.joined(fmt.run_name(run, report.current), _data(run, drawn)) for run in drawn]
    if all(len(run.curves) < 2 for run in drawn):
        yield Section("ends", "At the end of training", [Facts([*zip(run_names, metrics, strict=True)])])
        return
    current = {run.experiment for run in report.requested()}
    total = sum(run.status != SKIPPED for run in report.runs if not current or run.experiment in current)
    selection = f" Drawn are {len(drawn)} of {total} runs, requested runs first, then the best."
    settings = [{**_settings(run), "seed": run.seed, "data": _data(run, drawn)} for run in drawn]
    swept = differing(settings)
    labels = [
        _label(facts, swept) or fmt.plain(run.fingerprint)[:8] for run, facts in zip(drawn, settings, strict=True)
    ]
    is_unique = bool(swept) and len(set(labels)) == len(labels)
    chart = drawings.curve_chart(
        drawn,
        labels,
        note=f"Solid lines show test, dashed lines training.{selection if len(drawn) < total else ''}",
        legend=[*zip(labels if is_unique else run_names, metrics, strict=True)],
    )
    yield Section("curves", chart.caption.partition(",")[0], [chart])


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that may differ between rows, with the device, backend and precision that were used."""
    fields = ("effective_device", "backend", "precision", *names("setting", repeated=False))
    return {name: getattr(run, name) for name in fields if name not in _REQUESTED}


def _data(run: Run, runs: Sequence[Run]) -> str:
    """Return "earlier data" if the run has other examples than the newest of the runs, or ""."""
    newest = max(runs, key=age_order)
    return "earlier data" if any(has_other_data(run, newest, split) for split in run.content_digests or ()) else ""


def _label(facts: Mapping[str, Any], swept: Iterable[str]) -> str:
    """Return the swept settings of a run for a chart."""
    settings = [f"{field_label(name)} {setting_word(facts[name])}" for name in swept if name != "data"]
    return fmt.joined(*settings, facts.get("data", ""))


def _final_metrics(run: Run) -> str:
    """Return accuracies and losses of the epoch with the selected weights."""
    selected = next((row for row in run.curves if row.epoch == run.kept_epoch), run.curves[-1])
    accuracy = f"test accuracy {fmt.percent(selected.test_accuracy)} (training {fmt.percent(selected.accuracy)}), "
    accuracy = "" if selected.test_accuracy is None else accuracy
    loss = f"test loss {fmt.number(selected.test_loss, 3)} (training {fmt.number(selected.loss, 3)})"
    return f"after epoch {fmt.number(selected.epoch)} {accuracy}{loss}"


def sweeps(report: Report) -> Iterator[Section]:
    """Yield the ranking metric by training time and by each swept setting, per requested experiment."""
    current = [experiment.name for experiment in report.experiments if experiment.is_current]
    for index, name in enumerate(current or [experiment.name for experiment in report.experiments], start=1):
        rows = ranked([row for row in report.scenarios if row.run.experiment == name])[0]
        if len(rows) < 2:
            continue
        metric = rows[0].run.ranking.metric
        title = f"{field_label(metric).capitalize()} by training time and setting"
        panels = [*_panels(rows, metric)][:_MAX_SWEEPS]
        chart = Chart(
            f"{title}: {fmt.plain(name)}",
            partial(drawings.plot_sweeps, panels),
            [f"{panel.title} by {panel.x_name}" for panel in panels],
            note="Each point is a ranked row of the scoreboard. Lines connect rows that differ in one setting only.",
            panels=len(panels),
            has_table=True,
        )
        yield Section(f"sweeps-{index}", title if len(current) == 1 else f"{title}: {fmt.plain(name)}", [chart])


def _panels(rows: Sequence[Row], metric: str) -> Iterator[Sweep]:
    """Yield the panels of an experiment."""
    title, is_accuracy = field_label(metric).capitalize(), metric == "test_accuracy"
    settings = [_settings(row.run) for row in rows]
    swept = differing(settings)
    labels = [_label(facts, swept) or fmt.model_and_recipe(row.run) for row, facts in zip(rows, settings, strict=True)]
    times = [
        [(row.train_seconds.mean, *_point(row, metric), label)]
        for row, label in zip(rows, labels, strict=True)
        if row.train_seconds.mean is not None
    ]
    if times:
        yield Sweep(title, "training time, s", times, is_accuracy, is_connected=False)
    for name in swept:
        others = [other for other in swept if other != name]
        values = [facts[name] for facts in settings]
        # Values of a recipe have no place on a numeric axis.
        is_numeric = all(isinstance(value, int | float) and value >= 0 for value in values)
        measures = [(title, metric, is_accuracy)]
        if name in ("global_batch_size", "effective_device"):
            has_times = all(row.epoch_seconds.mean is not None for row in rows)
            rate = (common_units(row.run.units for row in rows).rate.capitalize(), "examples_per_second", False)
            measures.append(("Epoch time, s", "epoch_seconds", False) if has_times else rate)
        for measure, field, in_percent in measures:
            lines: dict[str, list] = {}
            for row, facts in zip(rows, settings, strict=True):
                x = facts[name] if is_numeric else setting_word(facts[name])
                label = _label(facts, others)
                lines.setdefault(label, []).append((x, *_point(row, field), label or fmt.model_and_recipe(row.run)))
            ordered = [sorted(line, key=lambda point: point[0]) for line in lines.values()]
            yield Sweep(measure, field_label(name), ordered, in_percent, is_connected=True)


def _point(row: Row, field: str) -> tuple[float | None, float | None]:
    value = getattr(row, field)
    return value.mean, value.deviation


def history(report: Report) -> Iterator[Section]:
    """Yield changes since the last comparable runs, and metrics of all runs of this storage root by date."""
    groups = [group for group in report.history if len(group) > 1][: drawings.MAX_LINES]
    if not groups:
        return
    titles = [*_group_names(groups)]
    endpoints = [[_height(group[index]) for index in (0, -1)] for group in groups]
    note = "All runs reported under this root, in groups of comparable runs. Lines connect runs of the same seed."
    chart = Chart(
        "Test accuracy and throughput of every run reported here, by date",
        partial(drawings.plot_history, groups),
        [f"{name}: from {first} to {last}" for name, (first, last) in zip(titles, endpoints, strict=True)],
        note=f"{note} {fmt.left_out(len(report.history) - len(groups), 'more group')}".strip(),
        legend=[(name, fmt.plural(len(group), "run")) for name, group in zip(titles, groups, strict=True)],
    )
    yield Section("history", "History", [change_table(report), chart])


def _height(run: Entry) -> str:
    return fmt.number(run.test_loss, 3) if run.test_accuracy is None else fmt.percent(run.test_accuracy)


def change_table(report: Report) -> Table:
    """Return the changes of accuracy and throughput since the last comparable runs."""
    columns = [*words("comparable runs", "metric"), *numbers("before", "now", "change"), *words("verdict")]
    rows = []
    for change in report.changes:
        run, accuracy, rate = change.runs[0], change.test_accuracy, change.examples_per_second
        ends = (accuracy.baseline, accuracy.value)
        if change.has_accuracy:
            before, now = map(fmt.percent, ends)
        else:
            before, now = (fmt.number(None if end is None else -end, 3) for end in ends)
        shown = (
            (change.metric, before, now, fmt.change_of(change)),
            (run.units.rate, fmt.number(rate.baseline), fmt.number(rate.value), fmt.signed(rate.change)),
        )
        for cells, metric in zip(shown, (accuracy, rate), strict=True):
            rows.append((group_name(run), *cells, describe_change(metric)))
    return Table(columns, rows, label="Changes since the last comparable runs", style="changes-table")


def _group_names(groups: Sequence[Sequence[Entry]]) -> Iterator[str]:
    """Yield the names of groups, with the end of the last run for groups that differ only in their data."""
    names = [group_name(group[0]) for group in groups]
    for name, group in zip(names, groups, strict=True):
        last = group[-1]
        newest = max((other[-1] for other, same in zip(groups, names, strict=True) if same == name), key=age_order)
        is_earlier = last.content_digests != newest.content_digests
        yield f"{name}, earlier data until {fmt.moment(last.finished_at)}" if is_earlier else name


def group_name(run: Entry) -> str:
    """Return the facts that the runs of a group share."""
    device = f"{fmt.plain(run.effective_device)} ({fmt.devices(run) or 'unknown'})"
    setup = f"batch {fmt.number(run.global_batch_size)}, {fmt.plural(run.epochs, 'epoch')}, {fmt.computed_in(run)}"
    setup += f", augment {fmt.plain(run.augment)}" if run.augment else ""
    return f"{fmt.model_and_recipe(run)} on {fmt.plain(run.dataset)}, {setup}, {device}"
