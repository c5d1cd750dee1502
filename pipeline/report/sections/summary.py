"""Head of a report, with a verdict on the requested runs, their changes, and warnings about their metrics."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.data.history import describe_change
from pipeline.report.data.reading import Run, call_hook, differing, split_counts
from pipeline.report.data.scoreboard import Row, has_other_data, ranked
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
    if len(runs) == 1:
        return _metrics(runs[0])
    num_finished = sum(run.status != SKIPPED for run in runs)
    skipped = f", {len(runs) - num_finished} skipped" if num_finished < len(runs) else ""
    several = f"{num_finished} of {fmt.plural(len(runs), 'requested run')} finished{skipped}."
    rows = [row for row in report.scenarios if not {*report.current}.isdisjoint(row.fingerprints)]
    if len(rows) == 1 and not skipped:
        return _metrics(rows[0])
    return " ".join([several, *(f"In the best row, {_metrics(row)}" for row in ranked(rows)[0][:1])])


def _metrics(row: Run | Row) -> str:
    """Return the metrics of a run, or of a row of runs that differ only in their seed."""
    run, num_runs = (row.run, len(row.runs)) if isinstance(row, Row) else (row, 1)
    units, unit = run.units, results_of(run.problem).loss_unit
    loss = f"{fmt.number(row.test_loss, 3)} {unit} per {units.singular} and " if unit else ""
    seeds = f" over {fmt.plural(num_runs, 'seed')}" if num_runs > 1 else ""
    validation = "" if seeds else fmt.percent(run.validation_accuracy).strip(MISSING)
    validated = f" ({validation} validation accuracy)" if validation else ""
    reached = f"{loss}{fmt.percent(row.test_accuracy)} test accuracy{seeds}{validated}"
    # Of several seeds, these are the scores of the one in the middle.
    scores = [
        f"{value} ({title[:1].lower() + title[1:] if title[1:2].islower() else title})"
        for title, value in call_hook(run.problem, "scores", run) or ()
    ]
    if scores:
        reached = f"{', '.join(scores[:2])} on the test split{f', seed {run.seed}' if seeds else ''},"
    bound = f" ({text})" if (text := time_verdict(run).partition(":")[0]) else ""
    device = f"{'' if run.device_verified else 'unverified '}{fmt.named_device(run)}"
    return (
        f"{fmt.plain(run.model)} reached {reached} on {fmt.data_phrase(run)} after {fmt.plural(run.epochs, 'epoch')} "
        f"and {fmt.number(row.train_seconds, 1)} s of training on {device}, at {fmt.number(row.examples_per_second)} "
        f"{units.rate}{bound}."
    )


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
    return [*filter(None, [*leads, str(report.comparison or "")]), *_since_last_run(report), *changes]


def _since_last_run(report: Report) -> Iterator[str]:
    """Yield the settings, the data and the code that changed, as a sentence per requested experiment."""
    finished = [run for run in report.requested() if run.status == FINISHED]
    for name in dict.fromkeys(run.experiment for run in finished):
        runs = [run for run in finished if run.experiment == name]
        ids = set(map(id, runs))
        # The newest runs come first.
        older = dropwhile(lambda run, ids=ids: id(run) not in ids, report.runs)
        others = (run for run in older if id(run) not in ids and run.status == FINISHED and run.experiment == name)
        if last := next(others, None):
            yield f"Since the last run ({fmt.moment(last.finished_at)}), {_differences(report, runs, last)} changed."


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
    if any(last.code and run.code and last.code != run.code for run in runs):
        parts.append("the code or the versions of libraries")
    *others, final = parts or ["no recorded setting, data or code"]
    return f"{', '.join(others)} and {final}" if others else final


def _data_change(before: Run, now: Run) -> str:
    """Return the splits with other examples and their sizes. Empty if they are equal or unknown."""
    parts = []
    for split in sorted({**(before.content_digests or {}), **(now.content_digests or {})}):
        if has_other_data(before, now, split):
            old, new = (fmt.number(split_counts(run).get(split)) for run in (before, now))
            examples = f"{fmt.plain(split)} {now.units.examples}"
            parts.append(f"{old} → {new} {examples}" if old != new else f"other {examples} ({new} as before)")
    return ", ".join(parts)


def warnings(report: Report, *, has_failures: bool = True) -> list[tuple[str, str]]:
    """Return (headline, explanation) pairs, first for the thresholds that are not reached, then for each run."""
    failures, not_judged = (report.gate.failures, report.gate.not_judged) if report.gate else ((), ())
    failed = [("Thresholds not reached", " ".join(map(fmt.sentence, failures)))] if failures and has_failures else []
    of_runs = dict.fromkeys(warning for run in report.requested() for warning in _warnings(run))
    return [*failed, *(("Not judged yet", fmt.sentence(words)) for words in not_judged), *of_runs]


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
