"""Sections with charts of metrics by epoch, training time, setting or date."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pipeline.problems.results import merit
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Chart, Facts, Section
from pipeline.report.data.history import age_order
from pipeline.report.data.reading import Entry, Run, differing
from pipeline.report.data.scoreboard import Row, field_label, has_other_data, ranked
from pipeline.report.drawings import Sweep
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import setting_word
from pipeline.runs.record import FINISHED, names

# Settings that the device, the backend and the precision that were used replace.
_REQUESTED = ("requested_device", "requested_backend", "requested_precision")
_MAX_SWEEPS = _MAX_DRAWN = 8


def curves(report: Report) -> Iterator[Section]:
    """Yield accuracy and loss by epoch, as facts if no run has a second epoch to draw a line to.

    Only runs of the requested experiments are drawn, because curves of different experiments cannot be compared.
    """
    finished = [run for run in report.runs if run.status == FINISHED]
    finished.sort(key=lambda run: (run.fingerprint not in report.current, -merit(run.problem, vars(run))))
    current = {run.experiment for run in finished if run.fingerprint in report.current}
    candidates = [run for run in finished if not current or run.experiment in current]
    if not (drawn := candidates[:_MAX_DRAWN]):
        return
    selection = f" Drawn are {len(drawn)} of {len(candidates)} runs, requested runs first, then the best."
    settings = [{**_settings(run), "seed": run.seed, "data": _data(run, drawn)} for run in drawn]
    swept = differing(settings)
    titles = [_label(facts, swept) or fmt.model_and_recipe(run) for run, facts in zip(drawn, settings, strict=True)]
    # Runs of other code may have the same settings.
    marks = [fmt.plain(run.fingerprint)[:8] * (titles.count(name) > 1) for run, name in zip(drawn, titles, strict=True)]
    labels = [*map(fmt.joined, titles, marks)]
    note = f"Solid lines show test, dashed lines training.{selection if len(drawn) < len(candidates) else ''}"
    legend = [*zip(labels, map(_final_metrics, drawn), strict=True)]
    chart = drawings.curve_chart(drawn, labels, note=note, legend=legend)
    has_lines = any(len(run.curves) > 1 for run in drawn)
    yield Section("curves", chart.caption.partition(",")[0], [chart if has_lines else Facts(legend)])


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that may differ between rows, with the device, backend and precision that were used."""
    fields = ("effective_device", "backend", "precision", *names("setting", repeated=False))
    return {name: getattr(run, name) for name in fields if name not in _REQUESTED}


def _data(run: Run, runs: Sequence[Run]) -> str:
    """Return "earlier data" if the run has other examples than the newest of the runs, or ""."""
    newest = max(runs, key=age_order)
    return "earlier data" if any(has_other_data(run, newest, split) for split in run.content_digests or ()) else ""


def _label(facts: Mapping[str, Any], swept: Iterable[str]) -> str:
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
    title, is_accuracy = field_label(metric).capitalize(), metric == "test_accuracy"
    settings = [_settings(row.run) for row in rows]
    swept = differing(settings)
    times = [
        [(row.train_seconds.mean, *_point(row, metric), _label(facts, swept) or fmt.model_and_recipe(row.run))]
        for row, facts in zip(rows, settings, strict=True)
        if row.train_seconds.mean is not None
    ]
    if times:
        yield Sweep(title, "training time, s", times, is_accuracy, is_connected=False)
    for name in swept:
        others = [other for other in swept if other != name]
        measures = [(title, metric, is_accuracy)]
        if name in ("global_batch_size", "effective_device") and all(row.epoch_seconds.mean for row in rows):
            measures.append(("Epoch time, s", "epoch_seconds", False))
        for measure, field, in_percent in measures:
            lines: dict[str, list] = {}
            for row, facts in zip(rows, settings, strict=True):
                # Values of a recipe have no place on a numeric axis.
                is_number = isinstance(facts[name], int | float) and facts[name] >= 0
                x = facts[name] if is_number else setting_word(facts[name])
                label = _label(facts, others)
                lines.setdefault(label, []).append((x, *_point(row, field), label or fmt.model_and_recipe(row.run)))
            yield Sweep(measure, field_label(name), [*lines.values()], in_percent, is_connected=True)


def _point(row: Row, field: str) -> tuple[float | None, float | None]:
    value = getattr(row, field)
    return value.mean, value.deviation


def history(report: Report) -> Iterator[Section]:
    """Yield metrics of all runs of this storage root by date."""
    groups = [group for group in report.history if len(group) > 1][: drawings.MAX_LINES]
    if not groups:
        return
    titles = [*_group_names(groups)]
    ends = [f"from {_height(group[0])} to {_height(group[-1])}" for group in groups]
    note = "All runs reported under this root, in groups of comparable runs. Lines connect runs of the same seed."
    chart = Chart(
        "Test accuracy and throughput of every run reported here, by date",
        partial(drawings.plot_history, groups),
        [f"{name}: {text}" for name, text in zip(titles, ends, strict=True)],
        note=f"{note} {fmt.left_out(len(report.history) - len(groups), 'more group')}".strip(),
        legend=[(name, fmt.plural(len(group), "run")) for name, group in zip(titles, groups, strict=True)],
    )
    yield Section("history", "History", [chart])


def _height(run: Entry) -> str:
    return fmt.number(run.test_loss, 3) if run.test_accuracy is None else fmt.percent(run.test_accuracy)


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
    setup = f"batch {fmt.number(run.global_batch_size)}, {fmt.plural(run.epochs, 'epoch')}, {fmt.computed_in(run)}"
    setup += f", augment {fmt.plain(run.augment)}" if run.augment else ""
    device = f"{fmt.plain(run.effective_device)} ({fmt.device_note(run, has_processes=False) or 'unknown'})"
    return f"{fmt.model_and_recipe(run)} on {fmt.plain(run.dataset)}, {setup}, {device}"
