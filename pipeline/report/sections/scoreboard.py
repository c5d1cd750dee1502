"""Scoreboards, with a line per experiment and a table of its runs and of published metrics."""

import math
from collections.abc import Iterator, Sequence

from pipeline.problems.results import results_of
from pipeline.problems.units import common_units
from pipeline.report import formats as fmt
from pipeline.report.blocks import Box, Cell, Group, Section, Table, Text, numbers, words
from pipeline.report.data.changes import Change, describe_change
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import Row
from pipeline.report.formats import MISSING, Spread
from pipeline.report.report import Report

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
            model = f"{fmt.model_and_recipe(best.run)}, {fmt.plural(len(best.seeds), 'run')}"
            hardware = f"{fmt.device_phrase(best.run)}, {fmt.computed_in(best.run)}"
            cells = [ranking_metric(best.run, best), model, fmt.number(best.train_seconds, 2), hardware]
        latest = MISSING
        if newest:
            latest = f"{ranking_metric(newest, newest) or MISSING}, {fmt.moment(newest.finished_at)}"
        rows.append((fmt.plain(experiment.name), *cells[:2], latest, _change(experiment.change), *cells[2:]))
    label = "Experiments with their best row, its time and hardware, and the newest run with its change"
    brief = Table(words(*titles[:4]), [(*row[:2], row[2].replace(" / ", ", "), row[3]) for row in rows])
    table = Table(words(*titles), rows, label=label, style="overview", brief=brief)
    yield Section("overview", "Experiments", [table])


def _change(change: Change | None) -> str:
    if change is None or not change.earlier:
        return "no earlier run"
    # The name avoids confusion with the loss in the same row.
    prefix = "" if results_of(change.runs[0].problem).ranking.metric == "test_accuracy" else "accuracy "
    return f"{prefix}{fmt.points(change.test_accuracy.change)}, {describe_change(change.test_accuracy)}"


def scoreboards(report: Report) -> Iterator[Section]:
    """Yield a scoreboard per experiment, folded for experiments that were not requested."""
    if not report.experiments:
        yield Section("scoreboard", "Scoreboard", [Text("No run has finished yet.")])
    for index, experiment in enumerate(report.experiments):
        block = table = scoreboard(report, experiment.name)
        if index and not experiment.is_current:
            block = Box("fold", [table], summary=f"{fmt.plural(len(table.rows), 'row')} of other runs under this root")
        title = f"Scoreboard: {fmt.plain(experiment.name)}" if len(report.experiments) > 1 else "Scoreboard"
        yield Section("scoreboard" if index == 0 else f"scoreboard-{index + 1}", title, [block])


def scoreboard(report: Report, experiment: str) -> Table:
    """Return the rows of an experiment, newest first, followed by published metrics."""
    rows = [row for row in report.scenarios if row.run.experiment == experiment]
    rate = common_units(row.run.units for row in rows).rate
    sources: dict[tuple[str, str], list[list[str | Cell]]] = {}
    for row in report.published:
        if row.experiment == experiment:
            not_stated = "; ".join(fmt.plain(fact, 200) for fact in row.not_stated)
            notes = (fmt.plain(row.source, 300), fmt.sentence(f"Not stated: {not_stated}") if not_stated else "")
            sources.setdefault(notes, []).append(published_cells(row))
    title = "Published elsewhere, not measured here"
    published = [Group(title, cells, notes, is_aside=True) for notes, cells in sources.items()]
    follow = " Numbers that were published elsewhere follow." if published else ""
    return Table(
        [
            *words("run", "requested → effective device", "device verified", "data, verified", "precision"),
            *numbers("batch", "epochs", "training time, s", rate, "test accuracy"),
            *words("repeated", "speed-up or reason"),
        ],
        [our_cells(row, fmt.mark(row.fingerprints, report.current)) for row in rows],
        published,
        label=f"Scoreboard: {fmt.plain(experiment)}",
        caption="Runs of this project, newest first. A row combines runs that differ only in their seed (mean ± "
        f"standard deviation).{follow}",
        style=f"scoreboard sortable{' tall' if len(rows) > 20 else ''}",
        brief=brief_scoreboard(report, rows, published, rate),
    )


def brief_scoreboard(report: Report, rows: Sequence[Row], published: Sequence[Group], rate: str) -> Table:
    """Return the scoreboard for a terminal. Columns without differences, such as a single dataset, stay empty."""
    has_several = len({row.run.dataset for row in rows}) > 1
    has_precisions = len({fmt.computed_in(row.run) for row in rows}) > 1
    columns = [
        *words("run", "device", "data"),
        *numbers("batch", "epochs", "training time, s", rate, "test accuracy"),
        *words("repeated", "speed-up"),
    ]
    cells = []
    for row in rows:
        run, (first, *_) = row.run, our_cells(row, fmt.mark(row.fingerprints, report.current))
        runs_note, _, augmented, seed_note, _ = first.notes
        seeds = ", ".join(filter(None, (runs_note, seed_note)))
        data, repetition = fmt.data_verified(run), repeated(row)
        requested, effective = fmt.plain(run.requested_device), fmt.plain(run.effective_device)
        ranking = ranking_metric(run, row) if results_of(run.problem).ranking.metric == "test_loss" else ""
        speedup = "" if row.speedup.ratio is None else f"{fmt.number(row.speedup.ratio, 2)} ×"
        device_notes = (fmt.computed_in(run) if has_precisions else "", "" if run.device_verified else "not verified")
        cells.append(
            [
                Cell(first.text.replace(" / ", ", "), notes=(seeds, augmented), tag=first.tag, alarms=first.alarms),
                Cell(f"{requested} → {effective}", notes=device_notes),
                Cell(fmt.plain(run.dataset), ("not verified",) if data == "no" else ()) if has_several else "",
                fmt.number(run.global_batch_size),
                fmt.number(run.epochs),
                fmt.number(row.train_seconds, 2),
                fmt.number(row.examples_per_second),
                Cell(fmt.percent(row.test_accuracy, 2), notes=(ranking,)),
                repetition,
                speedup,
            ]
        )
    published_groups = [
        Group("", [[Cell(str(row[0])), row[1], "", *row[5:9], row[9], "", ""] for row in group.rows], is_aside=True)
        for group in published
    ]
    return Table(columns, cells, published_groups, style="scoreboard")


def our_cells(row: Row, mark: str) -> list[str | Cell]:
    """Return the cells of a row of this project."""
    run, runs, seeds = row.run, len(row.seeds), ", ".join(map(fmt.number, row.seeds))
    seed_note = fmt.plain(f"seeds {seeds}") if runs > 1 else f"seed {seeds}, {fmt.plain(row.fingerprints[0])[:8]}"
    runs_note = fmt.plural(runs, "run") if runs > 1 else ""
    augmented = f"augmented by {fmt.plain(run.augment)}" if run.augment else ""
    requested, device = fmt.plain(run.requested_device), fmt.plain(run.effective_device)
    host = f"on {fmt.hosts(row.hostnames)}" if any(row.hostnames) else ""
    verified, data_verified = fmt.device_verified(run), fmt.data_verified(run)
    precision, verdict, speedup = fmt.plain(run.requested_precision), repeated(row), row.speedup
    return [
        Cell(
            fmt.model_and_recipe(run),
            notes=(runs_note, fmt.inputs(run), augmented, seed_note, fmt.moment(run.finished_at)),
            tag=mark,
            alarms=fmt.remarks(run, row.resumed),
        ),
        Cell(f"{requested} → {device}", (fmt.device_note(run), host), needs_care=requested not in ("auto", device)),
        Cell(verified, needs_care=verified != "yes"),
        Cell(fmt.plain(run.dataset), (f"verified: {data_verified}",), needs_care=data_verified == "no"),
        ("" if precision in ("auto", run.precision) else f"{precision} → ") + fmt.computed_in(run),
        fmt.number(run.global_batch_size),
        fmt.number(run.epochs),
        fmt.number(row.train_seconds, 2),
        fmt.number(row.examples_per_second),
        accuracy(row),
        Cell(verdict, needs_care=verdict.startswith("differs")),
        ("" if speedup.ratio is None else f"{fmt.number(speedup.ratio, 2)} × ") + speedup.words,
    ]


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
        Cell(fmt.plain(row.scenario), ("published elsewhere", *notes, *map(fmt.plain, row.details))),
        Cell(" → ".join(devices), (fmt.plain(row.device_note),)),
        "not verified",
        Cell(fmt.plain(row.datasets[0]), ("not verified",)),
        MISSING,
        fmt.number(row.global_batch_size),
        fmt.number(row.epochs),
        fmt.as_published(row.train_seconds),
        fmt.as_published(row.examples_per_second),
        Cell(accuracy, (mistakes,)),
        "",
        "published elsewhere",
    ]


def accuracy(row: Row) -> Cell:
    """Return the test accuracy, with the other metrics of the same model."""
    metrics = (row.test_tta_accuracy, row.validation_accuracy, row.validation_tta_accuracy)
    tta, validation, validation_tta = (fmt.percent(metric, 2).strip(MISSING) for metric in metrics)
    notes = [
        ranking_metric(row.run, row) if results_of(row.run.problem).ranking.metric == "test_loss" else "",
        f"{tta} with TTA" if tta else "",
        f"validation {validation}{f' ({validation_tta} with TTA)' if validation_tta else ''}" if validation else "",
        counted(row),
    ]
    return Cell(fmt.percent(row.test_accuracy, 2), tuple(filter(None, notes)))


def repeated(row: Row) -> str:
    """Return whether retraining the runs of a row gave the same weights, for the runs that were retrained."""
    results = [repetition.is_identical for repetition in row.repetitions if repetition]
    if not results:
        return "not repeated" if row.run.deterministic == "true" else MISSING
    identical, runs = sum(results), len(row.repetitions)
    if identical < len(results):
        return "differs" if runs == 1 else f"differs: {len(results) - identical} of {runs} runs"
    return "bit-identical" if identical == runs else f"bit-identical: {identical} of {runs} runs, others not repeated"


def ranking_metric(run: Run, metrics: Run | Row, decimals: int = 2) -> str:
    """Return the metric that ranks a run or row, with its unit, an accuracy with so many decimals. Empty if missing."""
    results = results_of(run.problem)
    name = results.ranking.metric
    value = getattr(metrics, name)
    text = f"{fmt.number(value, 3)} {results.loss_unit}" if name == "test_loss" else fmt.percent(value, decimals)
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
    size = f"{fmt.number(test_examples)} {row.run.units.plural}"
    if results_of(row.run.problem).ranking.predictions_per_draw > 1:
        return size
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {fmt.number(100 * error, 1)} points ({size})" if error >= _MIN_STANDARD_ERROR else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {fmt.number(test_examples)} wrong" if test_examples else f"{count} wrong"
