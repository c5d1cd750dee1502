"""Scoreboards: a line for each experiment, and a table of its runs beside published figures."""

import math
from collections.abc import Iterator, Sequence

from pipeline.problems.results import results_of
from pipeline.problems.units import common_units
from pipeline.report import formats as fmt
from pipeline.report.blocks import Box, Cell, Group, Section, Table, Text, figures, words
from pipeline.report.data.changes import Change, describe_change
from pipeline.report.data.published import PublishedRow
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import Row
from pipeline.report.formats import NO_FIGURE, Spread
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
        best, newest = one.best, one.newest
        of_best = [NO_FIGURE] * 4
        if best:
            by = f"{fmt.model_and_recipe(best.run)}, {fmt.plural(len(best.seeds), 'run')}"
            where = f"{fmt.device_phrase(best.run)}, {fmt.computed_in(best.run)}"
            of_best = [ranking_metric(best.run, best), by, fmt.number(best.train_seconds, 2), where]
        last = NO_FIGURE
        if newest:
            last = f"{ranking_metric(newest, newest) or NO_FIGURE}, {fmt.moment(newest.finished_at)}"
        rows.append((fmt.plain(one.name), *of_best[:2], last, _change(one.change), *of_best[2:]))
    label = "Experiments: the best row, the newest run, its change, and the time and hardware of the best"
    brief = Table(words(*titles[:4]), [(*row[:2], row[2].replace(" / ", ", "), row[3]) for row in rows])
    table = Table(words(*titles), rows, label=label, style="overview", brief=brief)
    yield Section("overview", "Experiments", [table])


def _change(change: Change | None) -> str:
    if change is None or not change.earlier:
        return "no earlier run"
    # Beside a loss it would be taken for a change of the loss.
    what = "" if results_of(change.runs[0].problem).ranking.metric == "test_accuracy" else "accuracy "
    return f"{what}{fmt.points(change.test_accuracy.change)}, {describe_change(change.test_accuracy)}"


def scoreboards(report: Report) -> Iterator[Section]:
    """A scoreboard for each experiment. Those of other experiments than the requested ones are folded."""
    if not report.experiments:
        yield Section("scoreboard", "Scoreboard", [Text("No run has finished yet.")])
    for place, one in enumerate(report.experiments):
        block = table = scoreboard(report, one.name)
        if place and not one.is_current:
            block = Box("fold", [table], summary=f"{fmt.plural(len(table.rows), 'row')} of other runs under this root")
        title = f"Scoreboard: {fmt.plain(one.name)}" if len(report.experiments) > 1 else "Scoreboard"
        yield Section("scoreboard" if place == 0 else f"scoreboard-{place + 1}", title, [block])


def scoreboard(report: Report, experiment: str) -> Table:
    """The rows of an experiment, newest first, and below them the figures that were published elsewhere."""
    rows = [row for row in report.scenarios if row.run.experiment == experiment]
    rate = common_units(row.run.units for row in rows).rate
    sources: dict[tuple[str, str], list[list[str | Cell]]] = {}
    for row in report.published:
        if row.experiment == experiment:
            not_stated = "; ".join(fmt.plain(one, 200) for one in row.not_stated)
            notes = (fmt.plain(row.source, 300), fmt.sentence(f"Not stated: {not_stated}") if not_stated else "")
            sources.setdefault(notes, []).append(published_cells(row))
    title = "Published elsewhere, not measured here"
    published = [Group(title, cells, notes, is_aside=True) for notes, cells in sources.items()]
    below = ", and below them figures that were published elsewhere" if published else ""
    return Table(
        [
            *words("run", "requested → effective device", "device verified", "data, verified", "precision"),
            *figures("batch", "epochs", "training time, s", rate, "test accuracy"),
            *words("repeated", "speed-up, or why none"),
        ],
        [our_cells(row, fmt.mark(row.fingerprints, report.current), report.series_of(row)) for row in rows],
        published,
        label=f"Scoreboard: {fmt.plain(experiment)}",
        caption=f"Runs of this project, the newest first. Runs that differ in their seed alone are one row (mean ± "
        f"standard deviation){below}.{' A tick draws the curves of a row below.' if report.has_curves() else ''}",
        style=f"scoreboard sortable{' tall' if len(rows) > 20 else ''}",
        brief=brief_scoreboard(report, rows, published, rate),
    )


def brief_scoreboard(report: Report, rows: Sequence[Row], published: Sequence[Group], rate: str) -> Table:
    """The scoreboard for a terminal. Columns without differences, such as the dataset of a single one, are empty."""
    has_several = len({row.run.dataset for row in rows}) > 1
    columns = [
        *words("run", "device", "data"),
        *figures("batch", "epochs", "training time, s", rate, "test accuracy"),
        *words("repeated", "speed-up"),
    ]
    cells = []
    for row in rows:
        run, (first, *_) = row.run, our_cells(row, fmt.mark(row.fingerprints, report.current), [])
        several, _, augmented, which, _ = first.notes
        seeds = ", ".join(filter(None, (several, which)))
        data, again = fmt.data_verified(run), repeated(row)
        requested, used = fmt.plain(run.requested_device), fmt.plain(run.effective_device)
        ranked = ranking_metric(run, row) if results_of(run.problem).ranking.metric == "test_loss" else ""
        speedup = "" if row.speedup.ratio is None else f"{fmt.number(row.speedup.ratio, 2)} ×"
        cells.append(
            [
                Cell(first.text.replace(" / ", ", "), notes=(seeds, augmented), tag=first.tag, alarms=first.alarms),
                Cell(f"{requested} → {used}", notes=() if run.device_verified else ("not verified",)),
                Cell(fmt.plain(run.dataset), ("not verified",) if data == "no" else ()) if has_several else "",
                fmt.number(run.global_batch_size),
                fmt.number(run.epochs),
                fmt.number(row.train_seconds, 2),
                fmt.number(row.examples_per_second),
                Cell(fmt.percent(row.test_accuracy, 2), notes=(ranked,)),
                again,
                speedup,
            ]
        )
    aside = [
        Group("", [[Cell(str(row[0])), row[1], "", *row[5:9], row[9], "", ""] for row in group.rows], is_aside=True)
        for group in published
    ]
    return Table(columns, cells, aside, style="scoreboard")


def our_cells(row: Row, mark: str, series: list[int]) -> list[str | Cell]:
    """The cells of runs of this project."""
    run, runs, seeds = row.run, len(row.seeds), ", ".join(map(fmt.number, row.seeds))
    which = fmt.plain(f"seeds {seeds}") if runs > 1 else f"seed {seeds}, {fmt.plain(row.fingerprints[0])[:8]}"
    several = fmt.plural(runs, "run") if runs > 1 else ""
    augmented = f"augmented by {fmt.plain(run.augment)}" if run.augment else ""
    requested, used = fmt.plain(run.requested_device), fmt.plain(run.effective_device)
    host = f"on {fmt.hosts(row.hostnames)}" if any(row.hostnames) else ""
    verified, data_verified = fmt.device_verified(run), fmt.data_verified(run)
    precision, again, speedup = fmt.plain(run.requested_precision), repeated(row), row.speedup
    return [
        Cell(
            fmt.model_and_recipe(run),
            notes=(several, fmt.inputs(run), augmented, which, fmt.moment(run.finished_at)),
            tag=mark,
            alarms=fmt.remarks(run, row.resumed),
            series=series,
        ),
        Cell(f"{requested} → {used}", (fmt.device_note(run), host), needs_care=requested not in ("auto", used)),
        Cell(verified, needs_care=verified != "yes"),
        Cell(fmt.plain(run.dataset), (f"verified: {data_verified}",), needs_care=data_verified == "no"),
        ("" if precision in ("auto", run.precision) else f"{precision} → ") + fmt.computed_in(run),
        fmt.number(run.global_batch_size),
        fmt.number(run.epochs),
        fmt.number(row.train_seconds, 2),
        fmt.number(row.examples_per_second),
        accuracy(row),
        Cell(again, needs_care=again.startswith("differs")),
        ("" if speedup.ratio is None else f"{fmt.number(speedup.ratio, 2)} × ") + speedup.words,
    ]


def published_cells(row: PublishedRow) -> list[str | Cell]:
    """The cells of a row that was published elsewhere, with the digits of the publication."""
    devices = map(fmt.plain, (row.requested_device, row.effective_device))
    figures = {
        "an epoch {} s": row.epoch_seconds,
        "an image {} µs": row.microseconds_per_example,
        "loss {}": row.test_loss,
    }
    more = [words.format(fmt.as_published(value)) for words, value in figures.items() if value is not None]
    reached, wrong = row.test_accuracy, row.wrong
    accuracy = NO_FIGURE if reached is None else f"{fmt.as_published(100 * reached)}%"
    mistakes = "" if wrong is None else _wrong(fmt.number(wrong), row.test_examples)
    return [
        Cell(fmt.plain(row.scenario), ("published elsewhere", *more, *map(fmt.plain, row.details))),
        Cell(" → ".join(devices), (fmt.plain(row.device_note),)),
        "not here",
        Cell(fmt.plain(row.datasets[0]), ("verified: not here",)),
        NO_FIGURE,
        fmt.number(row.global_batch_size),
        fmt.number(row.epochs),
        fmt.as_published(row.train_seconds),
        fmt.as_published(row.examples_per_second),
        Cell(accuracy, (mistakes,)),
        "",
        "published elsewhere",
    ]


def accuracy(row: Row) -> Cell:
    """The test accuracy, with the other metrics of the same model."""
    metrics = (row.test_tta_accuracy, row.validation_accuracy, row.validation_tta_accuracy)
    views, validation, both = (fmt.percent(metric, 2).strip(NO_FIGURE) for metric in metrics)
    notes = [
        ranking_metric(row.run, row) if results_of(row.run.problem).ranking.metric == "test_loss" else "",
        f"{views} with TTA" if views else "",
        f"validation {validation}{f' ({both} with TTA)' if both else ''}" if validation else "",
        counted(row),
    ]
    return Cell(fmt.percent(row.test_accuracy, 2), tuple(filter(None, notes)))


def repeated(row: Row) -> str:
    """Whether the weights were the same when the runs of a row were trained again, as far as it was tried."""
    seen = [one.is_identical for one in row.repetitions if one]
    if not seen:
        return "not repeated" if row.run.deterministic == "true" else NO_FIGURE
    alike, runs = sum(seen), len(row.repetitions)
    if alike < len(seen):
        return "differs" if runs == 1 else f"differs: {len(seen) - alike} of {runs} runs"
    return "bit-identical" if alike == runs else f"bit-identical: {alike} of {runs} runs, the others not repeated"


def ranking_metric(run: Run, metrics: Run | Row) -> str:
    """The metric that ranks a run, or a row of such runs, with its unit. Empty if it is missing."""
    results = results_of(run.problem)
    by = results.ranking.metric
    value = getattr(metrics, by)
    text = f"{fmt.number(value, 3)} {results.loss_unit}" if by == "test_loss" else fmt.percent(value, 2)
    return "" if text.startswith(NO_FIGURE) else text


def counted(row: Row) -> str:
    """The number of mistakes if there are few, or the standard error of the accuracy if there are few images.

    It is the error of these images and no others; it says nothing about other seeds. The error of predictions that
    depend on each other is not known, so their number is stated.
    """
    mean, test_examples = row.test_accuracy.mean, row.run.test_examples
    if mean is None or not test_examples or not 0 <= mean <= 1:
        return ""
    if mean >= _FEW_WRONG:
        mistakes = Spread(1 - mean, row.test_accuracy.deviation)
        return _wrong(fmt.number(mistakes, scale=test_examples), test_examples)
    so_many = f"{fmt.number(test_examples)} {row.run.units.many}"
    if results_of(row.run.problem).ranking.predictions_per_draw > 1:
        return so_many
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {fmt.number(100 * error, 1)} points ({so_many})" if error >= _MUCH else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {fmt.number(test_examples)} wrong" if test_examples else f"{count} wrong"
