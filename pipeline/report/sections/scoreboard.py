"""Scoreboards, with a line per experiment and a table of its runs, best first, and of published metrics."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

from pipeline.problems.results import results_of
from pipeline.problems.units import common_units
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Column, Section, Table, Text, numbers, words
from pipeline.report.data.changes import Change, describe_change
from pipeline.report.data.experiments import ranked
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Run, scores_of
from pipeline.report.data.scenarios import Row, field_label, grouped
from pipeline.report.formats import MISSING, Spread
from pipeline.report.report import Report
from pipeline.runs.record import FINISHED, SKIPPED, RunRecord, names

_MAX_SETTINGS, _MAX_SEEDS = 4, 5
# Settings that the scoreboard states with their defaults too.
_ALWAYS_STATED = ("global_batch_size", "epochs", "requested_precision", "seed", "requested_dataset", "input_shape")
_IN_OTHER_COLUMNS = ("model", "training_recipe", "requested_device", "requested_backend")

# From this accuracy on, the number of mistakes replaces the standard error.
_MIN_COUNTED_ACCURACY = 0.95
# A smaller standard error, such as that of CIFAR-10's 10,000 images, is omitted.
_MIN_STANDARD_ERROR = 0.005


def overview(report: Report) -> Iterator[Section]:
    """Yield a line per experiment if there are several."""
    if len(report.experiments) < 2:
        return
    titles = ("experiment", "best on the test split", "model", "newest", "change", "training time, s", "hardware")
    rows = []
    for experiment in report.experiments:
        best, newest = experiment.best, experiment.newest
        cells = [MISSING] * 4
        if best:
            num_runs = fmt.plural(len(best.seeds), "run") if len(best.seeds) > 1 else ""
            model = fmt.joined(fmt.model_and_recipe(best.run), num_runs)
            hardware = f"{fmt.device_phrase(best.run)}, {fmt.computed_in(best.run)}"
            cells = [ranking_metric(best.run, best), model, fmt.number(best.train_seconds, 2), hardware]
        latest = MISSING
        if newest:
            data = "placeholder data" if newest.is_placeholder else ""
            latest = fmt.joined(ranking_metric(newest, newest) or MISSING, data, fmt.moment(newest.finished_at))
        rows.append((fmt.plain(experiment.name), *cells[:2], latest, _change(experiment.change), *cells[2:]))
    columns = [*words(*titles[:5]), *words(*titles[5:], is_hidden=True)]
    label = "Experiments with their best row, and the newest run with its change"
    table = Table(columns, rows, label=label, style="overview")
    yield Section("overview", "Experiments", [table])


def _change(change: Change | None) -> str:
    if change is None or not change.earlier:
        return "no comparable earlier run"
    # The name avoids confusion with the loss in the same row.
    prefix = "" if change.metric == change.runs[0].ranking.metric.replace("_", " ") else "accuracy "
    return f"{prefix}{fmt.change_of(change)}, {describe_change(change.test_accuracy)}"


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


def scoreboard(report: Report, experiment: str, machine_of: Callable[[Row], str] = lambda row: "") -> Table:
    """Return the rows of an experiment, best first. Its columns are settings that differ, and at most six others."""
    best_first, other_data, rest = ranked([row for row in report.scenarios if row.run.experiment == experiment])
    rows = [*best_first, *other_data, *rest]
    finished = [row for row in rows if row.run.status != SKIPPED] or rows
    values = {name: [setting(row, name) for row in finished] for name in settings()}
    run, num_values = finished[0].run, {name: len(set(values[name])) for name in values}
    differing = sorted((name for name in values if num_values[name] > 1), key=lambda name: -num_values[name])
    shown, more = differing[:_MAX_SETTINGS], differing[_MAX_SETTINGS:]
    shared = [_phrase(run, name, values[name][0]) for name in values if num_values[name] == 1]
    metrics = " or ".join(dict.fromkeys(run.ranking.metric.replace("_", " ") for run in (row.run for row in rows)))
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
        name = _name(row, fmt.mark(row.fingerprints, current), has_other_data=any(row is other for other in other_data))
        cells = ([setting(row, name) for name in group] for group in (shown, more))
        lines.append([number, name, *next(cells), *measured_cells(row, machine_of(row)), *next(cells)])
    order = f"Best first by {metrics}. " if len(best_first) > 1 else ""
    caption = f"{order}{'All rows' if len(rows) > 1 else 'Settings'}: {' · '.join(filter(None, shared))}."
    style = f"scoreboard sortable{' tall' if len(rows) > 20 else ''}"
    return Table(columns, lines, f"Scoreboard: {fmt.plain(experiment)}", caption, style, head=1)


def settings() -> list[str]:
    """Return the fields of the record that are settings of the scoreboard."""
    fields = dict.fromkeys((*_ALWAYS_STATED, *names("setting", repeated=False), "initial_weights_digest"))
    return [name for name in fields if name not in _IN_OTHER_COLUMNS]


def row_settings(row: Row) -> dict[str, str]:
    """Return the settings of a row by their titles."""
    facts = {_setting_title(name): setting(row, name) for name in settings()}
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
    """Return the model and the recipe of a row, with reasons for caution."""
    run, runs, verdict = row.run, len(row.seeds), repeated(row)
    alarms = [*fmt.remarks(run, *row.runs), f"repetition {verdict}" if verdict.startswith("differs") else ""]
    alarms.append("other test data" if has_other_data else "")
    return Cell(
        f"{fmt.plain(run.model)} / {fmt.plain(run.training_recipe)}",
        notes=(fmt.plural(runs, "run") if runs > 1 else fmt.plain(row.fingerprints[0])[:8],),
        tag=mark,
        alarms=[*filter(None, alarms)],
        anchor=fmt.run_anchor(run),
    )


def measured_cells(row: Row, machine: str = "") -> list[str | Cell]:
    """Return the metrics of a row, its device with a name of the machine, and the columns that are hidden at first."""
    run, verdict, speedup = row.run, repeated(row), row.speedup
    requested, device, verified = (
        fmt.plain(run.requested_device),
        fmt.plain(run.effective_device),
        fmt.device_verified(run),
    )
    ratio = "" if speedup.ratio is None else f"{fmt.number(speedup.ratio, 2)} ×"
    has_caution = run.status != SKIPPED and not run.device_verified
    return [
        metric(row),
        fmt.number(row.train_seconds, 2),
        Cell(fmt.number(row.examples_per_second), (f"speed-up {ratio}" if ratio else "",)),
        Cell(
            f"{requested} → {device}",
            (fmt.device_note(run), machine),
            alarms=["not verified"] if has_caution else [],
            needs_care=requested not in ("auto", device),
        ),
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
    for source in dict.fromkeys((row.source, row.not_stated) for row in rows):
        not_stated = "; ".join(fmt.plain(fact, 200) for fact in source[1])
        caption = f"Published elsewhere, not measured here: {fmt.sentence(fmt.plain(source[0], 300))}"
        caption += fmt.sentence(f" Not stated: {not_stated}") if not_stated else ""
        cells = [published_cells(row) for row in rows if (row.source, row.not_stated) == source]
        tables.append(
            Table(
                columns, cells, f"Results published elsewhere: {fmt.plain(source[0])}", caption, "scoreboard published"
            )
        )
    return tables


def published_cells(row: PublishedRow) -> list[str | Cell]:
    """Return the cells of a published row, with the digits of the publication."""
    devices = map(fmt.plain, (row.requested_device, row.effective_device))
    metrics = {
        "{} s per epoch": row.epoch_seconds,
        "{} µs per image": row.microseconds_per_example,
        "loss {}": row.test_loss,
    }
    notes = [template.format(fmt.as_published(value)) for template, value in metrics.items() if value is not None]
    accuracy_share, wrong = row.test_accuracy, row.wrong
    accuracy = MISSING if accuracy_share is None else f"{fmt.as_published(100 * accuracy_share)}%"
    mistakes = "" if wrong is None else _wrong(fmt.number(wrong), row.test_examples)
    return [
        Cell(fmt.plain(row.scenario), (*notes, *map(fmt.plain, row.details))),
        Cell(" → ".join(devices), (fmt.plain(row.device_note),)),
        fmt.plain(row.datasets[0]),
        fmt.number(row.global_batch_size),
        fmt.number(row.epochs),
        Cell(accuracy, (mistakes,)),
        fmt.as_published(row.train_seconds),
        fmt.as_published(row.examples_per_second),
    ]


def metric(row: Row) -> Cell:
    """Return the metric that ranks a row, with the other metrics of the same model."""
    metrics = (row.test_accuracy, row.test_tta_accuracy, row.validation_accuracy, row.validation_tta_accuracy)
    accuracy, tta, validation, validation_tta = (fmt.percent(value, 2).strip(MISSING) for value in metrics)
    notes = [
        f"accuracy {accuracy}" if accuracy and row.run.ranking.metric == "test_loss" else "",
        f"{tta} with TTA" if tta else "",
        f"validation {validation}{f' ({validation_tta} with TTA)' if validation_tta else ''}" if validation else "",
        counted(row),
        # Scores are not means. A row of several seeds has those of the run in the middle.
        *(f"{title} {value}{f' (seed {row.run.seed})' * (len(row.runs) > 1)}" for title, value in scores_of(row.run)),
    ]
    return Cell(ranking_metric(row.run, row) or MISSING, tuple(filter(None, notes)))


def repeated(row: Row) -> str:
    """Return whether retraining the runs of a row gave the same weights, for the runs that were retrained."""
    results = [run.repetition.is_identical for run in row.runs if run.repetition]
    if not results:
        return "not repeated" if row.run.deterministic == "true" else MISSING
    identical, runs = sum(results), len(row.runs)
    if identical < len(results):
        return "differs" if runs == 1 else f"differs: {len(results) - identical} of {runs} runs"
    return "bit-identical" if identical == runs else f"bit-identical: {identical} of {runs} runs, others not repeated"


def ranking_metric(run: Run, metrics: Run | Row, decimals: int = 2) -> str:
    """Return the metric that ranks a run or row, with its unit, an accuracy with so many decimals. Empty if missing."""
    value, unit = getattr(metrics, run.ranking.metric), results_of(run.problem).loss_unit
    is_loss = run.ranking.metric == "test_loss"
    text = f"{fmt.number(value, 3)} {unit}" if is_loss else fmt.percent(value, decimals)
    return "" if text.startswith(MISSING) else text


def counted(row: Row) -> str:
    """Return the number of mistakes if it is small, or the standard error of the accuracy on few images.

    The standard error describes this test split, not other seeds. It is unknown for predictions that depend on each
    other, so their number is returned instead.
    """
    mean, test_examples = row.test_accuracy.mean, row.run.test_examples
    if mean is None or not test_examples or not 0 <= mean <= 1:
        return ""
    if mean >= _MIN_COUNTED_ACCURACY:
        mistakes = Spread(1 - mean, row.test_accuracy.deviation)
        return _wrong(fmt.number(mistakes, scale=test_examples), test_examples)
    if row.run.ranking.predictions_per_draw > 1:
        return f"{fmt.number(test_examples)} {row.run.units.plural}"
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {fmt.number(100 * error, 1)} points" if error >= _MIN_STANDARD_ERROR else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {fmt.number(test_examples)} wrong" if test_examples else f"{count} wrong"


def results(report: Report) -> list[Block]:
    """Return a scoreboard per experiment with finished runs on real data, and the machines. Empty without such runs."""
    finished = [row for row in report.scenarios if row.run.status == FINISHED and not row.run.is_placeholder]
    setup = ("experiment", "dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
    newest = [group[0] for group in grouped(finished, setup, attrgetter("run"))]
    newest_only = replace(report, current=[], scenarios=newest)
    experiments = grouped(newest, ["experiment"], attrgetter("run"))
    machines = list(dict.fromkeys(_machine(row.run) for rows in experiments for row in rows))
    # A single machine has no number.
    numbered = {name: f"machine {index}" if len(machines) > 1 else "" for index, name in enumerate(machines, start=1)}
    blocks: list[Block] = []
    for rows in experiments:
        name = rows[0].run.experiment
        table = scoreboard(newest_only, name, lambda row: numbered[_machine(row.run)])
        blocks += [Text(fmt.plain(name), kind="heading"), table, *published(newest_only, name)]
    leads = {machine: f"Measured on {name}".rstrip() for machine, name in numbered.items()}
    return [*blocks, *(Text(machine, lead=lead, kind="-") for machine, lead in leads.items())]


def _machine(run: Run) -> str:
    """Return the machine of a run. All runs of a row share it."""
    device = fmt.plain(run.device_name or run.effective_device)
    cores = fmt.plural(run.granted_cores, "core") if run.granted_cores else ""
    memory = f"{fmt.number(run.granted_memory_gib)} GiB" if run.granted_memory_gib else ""
    verified = "device verified" if run.device_verified else "device not verified"
    fetched = f"fetched from {fmt.plain(run.fetched_from)}" if run.fetched_from else ""
    # Some device names contain the number of cores.
    return fmt.joined(device, "" if cores in device else cores, memory, fmt.computed_in(run), verified, fetched)
