"""Scoreboards, with a line per experiment and a table of its runs, best first, and of published metrics."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.problems.problem import common_units
from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Column, Section, Table, Text, numbers, words
from pipeline.report.data.history import describe_change, sampling_error
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Run, call_hook, grouped
from pipeline.report.data.scoreboard import Row, field_label, loss_units, ranked
from pipeline.report.formats import MISSING
from pipeline.report.report import Report
from pipeline.runs.record import FINISHED, SKIPPED, RunRecord, names

_MAX_SETTINGS, _MAX_SEEDS = 4, 5
# Settings that the scoreboard states with their defaults too.
_ALWAYS_STATED = ("global_batch_size", "epochs", "requested_precision", "seed", "requested_dataset", "input_shape")
_IN_OTHER_COLUMNS = ("model", "training_recipe", "requested_device", "requested_backend")
_FIELDS = dict.fromkeys((*_ALWAYS_STATED, *names("setting", repeated=False), "initial_weights_digest"))
_SETTINGS = [name for name in _FIELDS if name not in _IN_OTHER_COLUMNS]

# A smaller standard error, such as that of CIFAR-10's 10,000 images, is omitted.
_MIN_STANDARD_ERROR = 0.005


def overview(report: Report) -> Iterator[Section]:
    """Yield a line per experiment if there are several."""
    if len(report.experiments) < 2:
        return
    rows = []
    for experiment in report.experiments:
        best, newest, change = experiment.best, experiment.newest, experiment.change
        cells, latest, moved = [MISSING] * 4, MISSING, "no comparable earlier run"
        if change and change.earlier:
            moved = f"{change.metric} {fmt.change_of(change)}, {describe_change(change.test_accuracy)}"
        if best:
            num_runs = fmt.plural(len(best.seeds), "run") if len(best.seeds) > 1 else ""
            hardware = f"{'' if best.run.device_verified else 'unverified '}{fmt.named_device(best.run)}"
            cells = [ranking_metric(best.run, best), fmt.joined(fmt.model_and_recipe(best.run), num_runs)]
            cells += [fmt.number(best.train_seconds, 2), fmt.joined(hardware, fmt.computed_in(best.run))]
        if newest:
            data = "placeholder data" if newest.is_placeholder else ""
            latest = fmt.joined(ranking_metric(newest, newest) or MISSING, data, fmt.moment(newest.finished_at))
        rows.append((fmt.plain(experiment.name), *cells[:2], latest, moved, *cells[2:]))
    columns = words("experiment", "best on the test split", "model", "newest", "change")
    columns += words("training time, s", "hardware", is_hidden=True)
    label = "Experiments with their best row, and the newest run with its change"
    yield Section("overview", "Experiments", [Table(columns, rows, label=label, style="overview")])


def scoreboards(report: Report) -> Iterator[Section]:
    """Yield a scoreboard per experiment, folded for experiments that were not requested."""
    if not report.experiments:
        yield Section("scoreboard", "Scoreboard", [Text("No run has finished yet.")])
    for index, experiment in enumerate(report.experiments):
        table = scoreboard(report, experiment.name)
        blocks = [table, Box("fold", published(report, experiment.name), summary="Results published elsewhere")]
        if index and not experiment.is_current:
            summary = f"{fmt.plural(len(table.rows), 'row')} of another experiment"
            blocks = [Box("fold", blocks, summary=summary)]
        title = f"Scoreboard: {fmt.plain(experiment.name)}" if len(report.experiments) > 1 else "Scoreboard"
        yield Section("scoreboard" if index == 0 else f"scoreboard-{index + 1}", title, blocks)


def scoreboard(report: Report, experiment: str) -> Table:
    """Return the rows of an experiment, best first. Its columns are settings that differ, and at most six others."""
    best_first, other_data, rest = ranked([row for row in report.scenarios if row.run.experiment == experiment])
    rows = [*best_first, *other_data, *rest]
    finished = [row for row in rows if row.run.status != SKIPPED] or rows
    values = {name: [setting(row, name) for row in finished] for name in _SETTINGS}
    run, num_values = finished[0].run, {name: len(set(values[name])) for name in values}
    differing = sorted((name for name in values if num_values[name] > 1), key=lambda name: -num_values[name])
    shown, more = differing[:_MAX_SETTINGS], differing[_MAX_SETTINGS:]
    shared = [_phrase(run, name, values[name][0]) for name in values if num_values[name] == 1]
    metrics = " or ".join(dict.fromkeys(row.run.ranking.metric.replace("_", " ") for row in rows))
    columns = [
        *numbers("#"),
        *words("run"),
        *(_column(run, name) for name in shown),
        *numbers(metrics, "training time, s", common_units(row.run.units for row in rows).rate),
        *words("device"),
        *words("device verified", "repeated", "speed-up or reason", "finished", "hosts", is_hidden=True),
        *(replace(_column(run, name), is_hidden=True) for name in more),
    ]
    are_all_requested = all(set(row.fingerprints) & set(report.current) for row in rows)
    current = [] if are_all_requested and len(rows) > 1 else report.current
    lines = []
    for rank, row in enumerate(rows, start=1):
        number = fmt.number(rank) if rank <= len(best_first) else MISSING
        is_requested = not {*current}.isdisjoint(row.fingerprints)
        name = _name(row, "requested" * is_requested, has_other_data=any(row is other for other in other_data))
        cells = ([setting(row, name) for name in group] for group in (shown, more))
        lines.append([number, name, *next(cells), *measured_cells(row), *next(cells)])
    order = f"Best first by {metrics}. " if len(best_first) > 1 else ""
    caption = f"{order}{'All rows' if len(rows) > 1 else 'Settings'}: {' · '.join(filter(None, shared))}."
    style = f"scoreboard sortable{' tall' if len(rows) > 20 else ''}"
    return Table(columns, lines, f"Scoreboard: {fmt.plain(experiment)}", caption, style, head=1)


def row_settings(row: Row) -> dict[str, str]:
    """Return the settings of a row by their titles."""
    facts = {_setting_title(name): setting(row, name) for name in _SETTINGS}
    names = {"model": fmt.plain(row.run.model), "recipe": fmt.plain(row.run.training_recipe)}
    return {**names, "device": fmt.named_device(row.run), **facts}


def _setting_title(name: str) -> str:
    return field_label(name).removeprefix("requested ").removeprefix("global ")


def setting(row: Row, name: str) -> str:
    """Return a setting of a row, with the requested value if another one is effective."""
    run = row.run
    if name == "seed":
        seeds = [*dict.fromkeys(map(fmt.number, row.seeds))]
        return ", ".join(seeds) if len(seeds) <= _MAX_SEEDS else fmt.plural(len(seeds), "seed")
    if name == "initial_weights_digest":
        return fmt.plain(run.initial_weights_digest or "random")[:8]
    if name in ("requested_dataset", "input_shape"):
        return fmt.data_phrase(run) if name == "requested_dataset" else fmt.inputs(run)
    requested, effective = (setting_word(getattr(run, field)) for field in (name, name.removeprefix("requested_")))
    text = effective if requested in ("auto", effective) else f"{requested} → {effective}"
    return f"{text} by JAX" if name == "requested_precision" and run.backend == "jax" else text


def setting_word(value: Any) -> str:
    """Format a value of a setting."""
    if value is None or isinstance(value, bool):
        return {None: "auto", True: "on", False: "off"}[value]
    if isinstance(value, float):
        return "recipe" if value < 0 else f"{value:g}"
    return fmt.number(value) if isinstance(value, int) else fmt.plain(value) or "none"


def _column(run: Run, name: str) -> Column:
    # A row may have several seeds.
    is_number = isinstance(getattr(run, name), int | float) and name != "seed"
    return Column(_setting_title(name), is_number=is_number and not isinstance(getattr(run, name), bool))


def _phrase(run: Run, name: str, value: str) -> str:
    """Return a setting that all rows share for the caption. Empty if the caption omits its default."""
    default = RunRecord.model_fields[name].default
    if name not in _ALWAYS_STATED and getattr(run, name) in (default, "auto", None):
        return ""
    if name in ("requested_precision", "requested_dataset", "input_shape"):
        return value
    return fmt.plural(run.epochs, "epoch") if name == "epochs" else f"{_setting_title(name)} {value}"


def _name(row: Row, mark: str, *, has_other_data: bool) -> Cell:
    run, num_runs, verdict = row.run, len(row.runs), repeated(row)
    alarms = [*fmt.remarks(run, *row.runs), *[f"repetition {verdict}"] * verdict.startswith("differs")]
    alarms += ["other test data or units of the loss" if loss_units(run) else "other test data"] * has_other_data
    name = f"{fmt.plain(run.model)} / {fmt.plain(run.training_recipe)}"
    notes = [fmt.plural(num_runs, "run") if num_runs > 1 else fmt.plain(run.fingerprint)[:8]]
    return Cell(name, notes, mark, alarms, anchor=fmt.run_anchor(run))


def measured_cells(row: Row) -> list[str | Cell]:
    """Return the metrics of a row, its device, and the columns that are hidden at first."""
    run, verdict, speedup = row.run, repeated(row), row.speedup
    requested, device = fmt.plain(run.requested_device), fmt.plain(run.effective_device)
    ratio, verified = fmt.number(speedup.ratio, 2, " ×").strip(MISSING), fmt.device_verified(run)
    alarms = ["not verified"] if run.status != SKIPPED and not run.device_verified else []
    is_other = requested not in ("auto", device)
    return [
        metric(row),
        fmt.number(row.train_seconds, 2),
        Cell(fmt.number(row.examples_per_second), (f"speed-up {ratio}" if ratio else "",)),
        Cell(f"{requested} → {device}", [fmt.device_note(run)], alarms=alarms, needs_care=is_other),
        Cell(verified, needs_care=verified != "yes"),
        Cell(verdict, needs_care=verdict.startswith("differs")),
        f"{ratio} {speedup.words}".strip(),
        fmt.moment(row.finished_at),
        fmt.hosts(row.runs),
    ]


def published(report: Report, experiment: str) -> list[Table]:
    """Return the published metrics of an experiment, a table per source."""
    rows = [row for row in report.published if row.experiment == experiment]
    rate = common_units(row.run.units for row in report.scenarios if row.run.experiment == experiment).rate
    columns = [
        *words("published elsewhere", "device", "data"),
        *numbers("batch", "epochs", "test accuracy", "training time, s", rate),
    ]
    tables = []
    for source, gaps in dict.fromkeys((row.source, row.not_stated) for row in rows):
        not_stated = "; ".join(fmt.plain(fact, 200) for fact in gaps)
        caption = f"Published elsewhere, not measured here: {fmt.sentence(fmt.plain(source, 300))}"
        caption += fmt.sentence(f" Not stated: {not_stated}") if not_stated else ""
        cells = [published_cells(row) for row in rows if (row.source, row.not_stated) == (source, gaps)]
        label = f"Results published elsewhere: {fmt.plain(source)}"
        tables.append(Table(columns, cells, label, caption, "scoreboard published"))
    return tables


def published_cells(row: PublishedRow) -> list[str | Cell]:
    """Return the cells of a published row, with the digits of the publication."""
    metrics = {
        "{} s per epoch": row.epoch_seconds,
        "{} µs per image": row.microseconds_per_example,
        "loss {}": row.test_loss,
    }
    notes = [template.format(fmt.as_published(value)) for template, value in metrics.items() if value is not None]
    accuracy = MISSING if row.test_accuracy is None else f"{fmt.as_published(100 * row.test_accuracy)}%"
    total = f" of {fmt.number(row.test_examples)}" if row.test_examples else ""
    device = f"{fmt.plain(row.requested_device)} → {fmt.plain(row.effective_device)}"
    return [
        Cell(fmt.plain(row.scenario), (*notes, *map(fmt.plain, row.details))),
        Cell(device, (fmt.plain(row.device_note),)),
        fmt.plain(row.datasets[0]),
        fmt.number(row.global_batch_size),
        fmt.number(row.epochs),
        Cell(accuracy, ("" if row.wrong is None else f"{fmt.number(row.wrong)}{total} wrong",)),
        fmt.as_published(row.train_seconds),
        fmt.as_published(row.examples_per_second),
    ]


def metric(row: Row) -> Cell:
    """Return the metric that ranks a row, with the other metrics of the same model."""
    means = {
        "accuracy {}": row.test_accuracy if row.run.ranking.metric == "test_loss" else None,
        "{} with TTA": row.test_tta_accuracy,
        "validation {}": row.validation_accuracy,
        "validation {} with TTA": row.validation_tta_accuracy,
    }
    notes = [template.format(text) for template, mean in means.items() if (text := fmt.percent(mean, 2)) != MISSING]
    # Scores are not means. A row of several seeds has those of the run in the middle.
    seed = f" (seed {row.run.seed})" if len(row.runs) > 1 else ""
    scores = (f"{title} {value}{seed}" for title, value in call_hook(row.run.problem, "scores", row.run) or ())
    return Cell(ranking_metric(row.run, row) or MISSING, tuple(filter(None, [*notes, standard_error(row), *scores])))


def repeated(row: Row) -> str:
    """Return whether retraining the runs of a row gave the same weights, for the runs that were retrained."""
    results = [run.repetition.is_identical for run in row.runs if run.repetition]
    if not results:
        return "not repeated" if row.run.deterministic == "true" else MISSING
    verdict, number = ("bit-identical", len(results)) if all(results) else ("differs", results.count(False))
    others = len(row.runs) - len(results)
    note = f", {others} not repeated" if others else ""
    return verdict if len(row.runs) == 1 else f"{verdict}: {number} of {len(row.runs)} runs{note}"


def ranking_metric(run: Run, metrics: Run | Row, decimals: int = 2) -> str:
    """Return the metric that ranks a run or row, with its unit, an accuracy with so many decimals. Empty if missing."""
    value, unit = getattr(metrics, run.ranking.metric), results_of(run.problem).loss_unit
    is_loss = run.ranking.metric == "test_loss"
    text = f"{fmt.number(value, 3)} {unit}" if is_loss else fmt.percent(value, decimals)
    return "" if text.startswith(MISSING) else text


def standard_error(row: Row) -> str:
    """Return the standard error of the accuracy on few examples. It describes this test split, not other seeds."""
    error = sampling_error(row.run.problem, row.test_accuracy.mean, row.run.test_examples)
    text = f"standard error {'at least ' * fmt.has_groups(row.run)}{fmt.number(error, 1, ' points', 100)}"
    return text if error >= _MIN_STANDARD_ERROR else ""


def results(report: Report) -> list[Block]:
    """Return a scoreboard per experiment with finished runs on real data, and the machines. Empty without such runs."""
    runs = [row.run for row in report.scenarios if row.run.status == FINISHED and not row.run.is_placeholder]
    setup = ("experiment", "dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
    newest = [report.row_of(group[0]) for group in grouped(runs, setup)]
    newest_only = replace(report, current=[], scenarios=newest)
    blocks: list[Block] = []
    for name in dict.fromkeys(row.run.experiment for row in newest):
        blocks += [Text(fmt.plain(name), kind="heading"), scoreboard(newest_only, name), *published(newest_only, name)]
    machines = dict.fromkeys(_machine(row.run) for row in newest)
    return [*blocks, *(Text(machine, lead="Measured on", kind="finding") for machine in machines)]


def _machine(run: Run) -> str:
    """Return the machine of a run. All runs of a row share it."""
    device = fmt.plain(run.device_name or run.effective_device)
    cores = fmt.plural(run.granted_cores or 0, "core")
    # Some device names contain the number of cores.
    cores = cores if run.granted_cores and cores not in device else ""
    memory = f"{fmt.number(run.granted_memory_gib)} GiB" if run.granted_memory_gib else ""
    verified = "device verified" if run.device_verified else "device not verified"
    fetched = f"fetched from {fmt.plain(run.fetched_from)}" if run.fetched_from else ""
    return fmt.joined(device, cores, memory, fmt.computed_in(run), verified, fetched)
