"""The head of a report: a verdict on the requested runs, their changes, and warnings about their figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report import formats as fmt
from pipeline.report.data.changes import change_words
from pipeline.report.formats import NO_FIGURE, Run
from pipeline.report.report import Report
from pipeline.report.sections.runs import skipped_files, time_verdict
from pipeline.runs.record import SKIPPED, is_stand_in


def verdict(report: Report) -> str:
    """One sentence about the requested runs."""
    runs = report.requested()
    if not runs:
        return "This report is about no run in particular." if report.runs else "No run has finished yet."
    if len(runs) > 1:
        return _verdict_on_several(report, runs)
    (run,) = runs
    if run["status"] == SKIPPED:
        return fmt.sentence(
            f"The run on {fmt.plain(run['requested_device'])} was skipped: {fmt.plain(run['mismatch']['cause'], 300)}"
        )
    validation = run.get("validation_accuracy")
    validated = "" if validation is None else f" ({fmt.percent(validation)} validation accuracy)"
    return _figures(
        run,
        loss=fmt.number(run["val_loss"], 3),
        accuracy=f"{fmt.percent(run['val_accuracy'])} test accuracy{validated}",
        seconds=fmt.number(run["train_seconds"], 1),
        rate=fmt.number(run["examples_per_second"]),
    )


def _figures(run: Run, *, loss: str, accuracy: str, seconds: str, rate: str) -> str:
    units = units_of_run(run)
    nats = f"{loss} nats a {units.one}, " if run["problem"] == NEXT_TOKEN else ""
    bound = time_verdict(run).partition(":")[0]
    return (
        f"{nats}{accuracy} on {fmt.data_phrase(run)} after {fmt.plural(run['epochs'], 'epoch')}: "
        f"{seconds} s of training on {fmt.device_phrase(run)}, {rate} {units.rate}{f', {bound}' if bound else ''}."
    )


def _verdict_on_several(report: Report, runs: Sequence[Run]) -> str:
    finished = [run for run in runs if run["status"] != SKIPPED]
    if row := _row_of(report, runs):
        return _figures(
            runs[0],
            loss=fmt.mean_number(row["val_loss"], 3),
            accuracy=f"{fmt.mean_percent(row['val_accuracy'])} test accuracy over {fmt.plural(len(runs), 'seed')}",
            seconds=fmt.mean_number(row["train_seconds"], 1),
            rate=fmt.mean_number(row["examples_per_second"]),
        )
    skipped = f", {len(runs) - len(finished)} skipped" if len(finished) < len(runs) else ""
    requested = f"{fmt.plural(len(runs), 'run')} requested, {len(finished)} finished{skipped}"
    if not finished:
        return f"{requested}."
    data = " and ".join(dict.fromkeys(fmt.data_phrase(run) for run in finished))
    rates = " or ".join(dict.fromkeys(units_of_run(run).rate for run in finished))
    accuracy = _range([run["val_accuracy"] for run in finished], fmt.percent)
    rate = _range([run["examples_per_second"] for run in finished], fmt.number)
    return f"{requested}: {accuracy} test accuracy on {data}, {rate} {rates}."


def _row_of(report: Report, runs: Sequence[Run]) -> Run | None:
    """The row of the scoreboard with these runs and no others."""
    asked_for = sorted(run["fingerprint"] for run in runs)
    rows = (row for row in report.scenarios if sorted(row["fingerprints"]) == asked_for)
    return next((row for row in rows if row["status"] != SKIPPED), None)


def _range(values: Sequence[float | None], show: Callable[[float | None], str]) -> str:
    known = [value for value in values if value is not None]
    return " to ".join(dict.fromkeys(show(end) for end in (min(known), max(known)))) if known else NO_FIGURE


def change_sentences(report: Report) -> list[str]:
    """A sentence for each group of requested runs that has earlier comparable runs."""
    return [
        f"Compared with the last comparable run ({fmt.moment(change['since'])}): "
        f"test accuracy {fmt.points(change['val_accuracy']['change'])}, {change_words(change['val_accuracy'])}; "
        f"{units_of_run(change).rate} {fmt.signed(change['examples_per_second']['change'])}, "
        f"{change_words(change['examples_per_second'])}."
        for change in report.changes
        if change["earlier"]
    ]


def is_alarming(report: Report) -> bool:
    """Whether the first warning is an alarm."""
    return any(is_stand_in(run) for run in report.requested()) or bool(report.gate and report.gate.failures)


def warnings(report: Report) -> list[tuple[str, str]]:
    """(headline, explanation): first the requirements that are not met, then the warnings of the runs, each once."""
    gate = report.gate
    failed = [("The gate failed", fmt.sentence("; ".join(gate.failures)))] if gate and gate.failures else []
    not_judged = [("Not judged yet", fmt.sentence(words)) for words in (gate.not_judged if gate else ())]
    of_runs = dict.fromkeys(warning for run in report.requested() for warning in _warnings(run))
    return [*failed, *not_judged, *of_runs]


def _warnings(run: Run) -> list[tuple[str, str]]:
    if run["status"] == SKIPPED:
        return [(f"Skipped: {fmt.plain(run['requested_device'])}", _mismatch_phrase(run))]
    found = _data_warnings(run) + _data_checks(run["evaluation"] or {}) + _device_warnings(run)
    if run["fetched_from"]:
        made = f"{fmt.plain(run['hostname'] or 'an unknown host')} on {fmt.moment(run['finished_at'])}"
        remote = fmt.plain(run["fetched_from"])
        explanation = f"It was made on {made}, and fetched from {remote}: its times are those of that machine."
        found.insert(0, ("Not made here", explanation))
    if run["requested_precision"] not in ("auto", run["precision"]):
        used, asked = fmt.plain(run["precision"]), fmt.plain(run["requested_precision"])
        found.append(("Not the requested precision", f"{asked} was requested, the run computed in {used}."))
    return found


def _data_warnings(run: Run) -> list[tuple[str, str]]:
    used, asked = fmt.dataset_name(run["dataset"]), fmt.dataset_name(run["requested_dataset"])
    found = []
    if is_stand_in(run):
        generated = f"Generated {units_of_run(run).many} were used instead of {asked}"
        found.append((f"Stand-in data, not {asked}", f"{generated}: these figures say nothing about {asked}."))
    elif run["dataset"] != run["requested_dataset"]:
        found.append(("Not the requested data", f"{asked} was requested, {used} was used."))
    # Nobody could clear a warning about data without a reference.
    elif fmt.data_verified(run) == "no":
        reason = f"Their content digest is not that of the original {used}. Prepare the data set anew."
        found.append(("Data not verified", reason))
    if omitted := skipped_files((run["records"] or {}).get("skipped", {})):
        found.append(("Images left out", omitted))
    return found


def _data_checks(evaluation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The results of the data checks, and the accuracy without the test images that train contains too."""
    found = [(fmt.plain(headline), fmt.plain(text, 600)) for headline, text in evaluation.get("data_warnings", ())]
    if without := evaluation.get("without_duplicates"):
        accuracy, all_of_it = (fmt.percent(one["accuracy"]) for one in (without, evaluation))
        others = f"On the other {fmt.number(without['num_examples'])} test images"
        headline = "Accuracy without the test images in the train split"
        found.append((headline, f"{others} it is {accuracy}, on all {all_of_it}."))
    return found


def _device_warnings(run: Run) -> list[tuple[str, str]]:
    used, asked = fmt.plain(run["effective_device"]), fmt.plain(run["requested_device"])
    found = []
    if fmt.is_fallback(run):
        reason = f"{asked} was requested, the run used {used}: its time and throughput are those of {used}."
        found.append(("Not the requested device", " ".join([reason, _mismatch_phrase(run)]).strip()))
    if not run["device_verified"]:
        found.append(("Device not verified", f"No measurement shows that the work was done on {used}."))
    return found


def _mismatch_phrase(run: Run) -> str:
    if run["mismatch"] is None:
        return ""
    return " ".join(fmt.sentence(fmt.plain(run["mismatch"][name], 300)) for name in ("cause", "remedy"))
