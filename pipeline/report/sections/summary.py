"""Head of a report, with a verdict on the requested runs, their changes, and warnings about their metrics."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import dropwhile

from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.data.changes import describe_change
from pipeline.report.data.experiments import has_other_data
from pipeline.report.data.reading import Run, scores_of, split_counts
from pipeline.report.data.scenarios import Row, differing
from pipeline.report.formats import MISSING
from pipeline.report.report import Report
from pipeline.report.sections.compare import lead_sentence
from pipeline.report.sections.runs import time_verdict
from pipeline.report.sections.scoreboard import ranking_metric, row_settings
from pipeline.runs.record import FINISHED, SKIPPED

_MAX_CHANGES = 6


def title(report: Report) -> str:
    """Return the requested experiment, or the only one, with the metric of its best row."""
    experiments = [one for one in report.experiments if one.is_current or len(report.experiments) == 1]
    if not experiments:
        return "TensorCraft report"
    experiment, best = experiments[0], experiments[0].best
    name = best.run.ranking.metric.replace("_", " ") if best else ""
    result = f": {ranking_metric(best.run, best, 1)} {name}" if best else ""
    return f"{fmt.plain(experiment.name)}{result} – TensorCraft"


def verdict(report: Report) -> str:
    """One sentence about the requested runs."""
    runs = report.requested()
    if not runs:
        return "No run was requested for this report." if report.runs else "No run has finished yet."
    if len(runs) == 1 and runs[0].status == SKIPPED:
        device, cause = fmt.plain(runs[0].requested_device), fmt.plain(runs[0].mismatch.cause, 300)
        return fmt.sentence(f"The run on {device} was skipped: {cause}")
    finished = [run for run in runs if run.status != SKIPPED]
    requested = sorted(run.fingerprint for run in runs)
    # The row of the scoreboard with these runs and no others.
    rows = [row for row in report.scenarios if sorted(row.fingerprints) == requested and row.run.status != SKIPPED]
    if len(runs) == 1 or rows:
        return _metrics(runs, runs[0] if len(runs) == 1 else rows[0])
    skipped = f", {len(runs) - len(finished)} skipped" if len(finished) < len(runs) else ""
    several = f"{len(finished)} of {fmt.plural(len(runs), 'requested run')} finished{skipped}"
    if not finished:
        return f"{several}."
    data = " and ".join(dict.fromkeys(fmt.data_phrase(run) for run in finished))
    rates = " or ".join(dict.fromkeys(run.units.rate for run in finished))
    reached = f"{_range([run.test_accuracy for run in finished], fmt.percent)} test accuracy"
    if all(run.test_accuracy is None for run in finished):
        reached = f"a test loss of {_range([run.test_loss for run in finished], partial(fmt.number, decimals=3))}"
    rate = _range([run.examples_per_second for run in finished], fmt.number)
    return f"{several}, with {reached} on {data}, at {rate} {rates}."


def _metrics(runs: Sequence[Run], row: Run | Row) -> str:
    """Return the metrics of a single run, or of several that differ only in their seed."""
    run, units = runs[0], runs[0].units
    unit = results_of(run.problem).loss_unit
    loss = f"{fmt.number(row.test_loss, 3)} {unit} per {units.singular} and " if unit else ""
    seeds = f" over {fmt.plural(len(runs), 'seed')}" if len(runs) > 1 else ""
    validation = run.validation_accuracy if len(runs) == 1 else None
    validated = "" if validation is None else f" ({fmt.percent(validation)} validation accuracy)"
    seconds, rate = fmt.number(row.train_seconds, 1), f"{fmt.number(row.examples_per_second)} {units.rate}"
    bound = f" ({text})" if (text := time_verdict(run).partition(":")[0]) else ""
    accuracy = f"{fmt.percent(row.test_accuracy)} test accuracy{seeds}{validated}"
    if results_of(run.problem).scores:
        # Of several seeds, the report names the one in the middle.
        middle = run if len(runs) == 1 else row.run
        scores = [
            f"{value} ({title[0].lower() + title[1:] if title[1].isalpha() else title})"
            for title, value in scores_of(middle)[:2]
        ]
        loss, accuracy = "", f"{', '.join(scores)} on the test split{f', seed {middle.seed}' if seeds else ''},"
    return (
        f"{fmt.plain(run.model)} reached {loss}{accuracy} on {fmt.data_phrase(run)} after "
        f"{fmt.plural(run.epochs, 'epoch')} and {seconds} s of training on {fmt.device_phrase(run)}, at {rate}{bound}."
    )


def _range(values: Sequence[float | None], show: Callable[[float | None], str]) -> str:
    numbers = [value for value in values if value is not None]
    return " to ".join(dict.fromkeys(show(end) for end in (min(numbers), max(numbers)))) if numbers else MISSING


def findings(report: Report) -> list[str]:
    """Return the lead of the best row per requested experiment, and the changes since earlier runs."""
    leads = [lead_sentence(report, experiment.name) for experiment in report.experiments if experiment.is_current]
    changes = [
        f"Since the last comparable run ({fmt.moment(change.since)}), the {change.metric} changed by "
        f"{fmt.change_of(change)}, {describe_change(change.test_accuracy)}. "
        f"The throughput changed by {fmt.signed(change.examples_per_second.change)} {change.runs[0].units.rate}, "
        f"{describe_change(change.examples_per_second)}."
        for change in report.changes
        if change.earlier
    ]
    compared = [str(report.comparison)] if report.comparison else []
    return [*filter(None, leads), *compared, *_since_last_run(report), *changes]


def _since_last_run(report: Report) -> Iterator[str]:
    """Yield the settings, the data and the code that changed, as a sentence per requested experiment."""
    finished = [run for run in report.requested() if run.status == FINISHED]
    for name in dict.fromkeys(run.experiment for run in finished):
        runs = [run for run in finished if run.experiment == name]
        if last := _last_run(report, runs):
            yield f"Since the last run ({fmt.moment(last.finished_at)}), {_differences(report, runs, last)} changed."


def _last_run(report: Report, runs: Sequence[Run]) -> Run | None:
    """Return the newest other run of the experiment that ended before the last of these runs."""
    ids = set(map(id, runs))
    older = dropwhile(lambda run: id(run) not in ids, report.runs)
    others = (run for run in older if id(run) not in ids and run.status == FINISHED)
    return next((run for run in others if run.experiment == runs[0].experiment), None)


def _differences(report: Report, runs: Sequence[Run], last: Run) -> str:
    last_row, *rows = map(report.row_of, (last, *runs))
    if any(row is last_row for row in rows):
        return "only the seed"
    before, *after = map(row_settings, (last_row, *rows))
    names = differing([before, *after])
    parts = [
        f"{name} ({before[name]} → {', '.join(dict.fromkeys(facts[name] for facts in after))})"
        for name in names[:_MAX_CHANGES]
    ]
    if len(names) > _MAX_CHANGES:
        parts.append(fmt.plural(len(names) - _MAX_CHANGES, "other setting"))
    if change := _data_change(last, runs[0]):
        parts.append(f"the data ({change})")
    if any(None not in (codes := {last.code, run.code}) and len(codes) > 1 for run in runs):
        parts.append("the code or the versions of libraries")
    *others, final = parts or ["no recorded setting, data or code"]
    return f"{', '.join(others)} and {final}" if others else final


def _data_change(before: Run, now: Run) -> str:
    """Return the splits with other examples and their sizes. Empty if they are equal or unknown."""
    sizes = [split_counts(run) for run in (before, now)]
    parts = []
    for split in sorted({**(before.content_digests or {}), **(now.content_digests or {})}):
        if has_other_data(before, now, split):
            old, new = (counts.get(split) for counts in sizes)
            examples = f"{fmt.plain(split)} {now.units.examples}"
            changed = f"{fmt.number(old)} → {fmt.number(new)} {examples}"
            parts.append(changed if old != new else f"other {examples} ({fmt.number(new)} as before)")
    return ", ".join(parts)


def is_alarming(report: Report) -> bool:
    """Return whether the first warning is an alarm."""
    return any(run.is_placeholder for run in report.requested()) or bool(report.gate and report.gate.failures)


def warnings(report: Report, *, has_failures: bool = True) -> list[tuple[str, str]]:
    """Return (headline, explanation) pairs, first for the thresholds that are not reached, then for each run."""
    gate, failed = report.gate, []
    if gate and gate.failures and has_failures:
        failed = [("Thresholds not reached", " ".join(map(fmt.sentence, gate.failures)))]
    not_judged = [("Not judged yet", fmt.sentence(words)) for words in (gate.not_judged if gate else ())]
    of_runs = dict.fromkeys(warning for run in report.requested() for warning in _warnings(run))
    return [*failed, *not_judged, *of_runs]


def _warnings(run: Run) -> Iterator[tuple[str, str]]:
    effective, requested = fmt.plain(run.effective_device), fmt.plain(run.requested_device)
    reasons = [run.mismatch.cause, run.mismatch.remedy] if run.mismatch else []
    cause = " ".join(fmt.sentence(fmt.plain(reason, 300)) for reason in reasons)
    if run.status == SKIPPED:
        yield f"Skipped: {requested}", cause
        return
    if run.fetched_from:
        origin = f"{fmt.plain(run.hostname or 'an unknown host')} on {fmt.moment(run.finished_at)}"
        remote = fmt.plain(run.fetched_from)
        yield (
            "Trained on another machine",
            f"{origin} trained this run. The times are from that machine. Remote: {remote}.",
        )
    yield from data_warnings(run)
    if fmt.is_fallback(run):
        reason = f"{requested} was requested, but the run used {effective}. Time and throughput are from {effective}."
        yield "Not the requested device", f"{reason} {cause}".strip()
    if not run.device_verified:
        yield "Device not verified", f"No measurement shows that the run used {effective}."
    precision, requested_precision = fmt.plain(run.precision), fmt.plain(run.requested_precision)
    if requested_precision not in ("auto", precision):
        yield "Not the requested precision", f"{requested_precision} was requested, but the run used {precision}."


def data_warnings(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (headline, explanation) pairs about the dataset, its files, and the results of the data checks."""
    effective, requested = fmt.dataset_name(run.dataset), fmt.dataset_name(run.requested_dataset)
    if run.is_placeholder:
        explanation = f"The run used generated {run.units.plural}. Its numbers are meaningless for {requested}."
        yield f"Placeholder data, not {requested}", explanation
    elif run.dataset != run.requested_dataset:
        yield "Not the requested data", f"{requested} was requested, but the run used {effective}."
    # Nobody could clear a warning about data without a reference.
    elif fmt.data_verified(run) == "no":
        reason = f"The content digest differs from the digest of the original {effective}. Prepare the dataset again."
        yield "Data not verified", reason
    if skipped := run.records and run.records.skipped:
        reasons = "; ".join(f"{fmt.plain(reason)}: {fmt.number(count)}" for reason, count in skipped.items())
        files = f"{fmt.plural(sum(skipped.values()), 'file')} of the source cannot be used ({reasons})."
        yield "Images not included", f"{files} The file skipped.csv in the folder of the records lists them."
    for headline, text in getattr(run.evaluation, "data_warnings", ()):
        yield fmt.plain(headline), fmt.plain(text, 600)
