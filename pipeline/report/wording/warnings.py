"""Warnings: for what the figures of the requested runs may be mistaken, and which demands of the gate they fail."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.facts.reading import is_fallback
from pipeline.report.facts.scoreboard import current_runs
from pipeline.report.wording.devices import data_verified
from pipeline.report.wording.encodings import skipped_sentence
from pipeline.report.wording.formats import dataset_name, moment, number, percent, plain, sentence
from pipeline.runs.record import SKIPPED, is_stand_in


def report_warnings(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was demanded and not met, then the warnings of the runs asked for."""
    failures = (report["gate"] or {}).get("failures", ())
    failed = [("The gate failed", sentence("; ".join(failures)))] if failures else []
    not_judged = [("Not judged yet", sentence(words)) for words in (report["gate"] or {}).get("not_judged", ())]
    return [*failed, *not_judged, *warnings(current_runs(report))]


def warnings(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(headline, explanation) for each way the runs' figures may be taken for something they are not, each once."""
    return list(dict.fromkeys(warning for run in runs for warning in _warnings(run)))


def _warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if run["status"] == SKIPPED:
        return [(f"Skipped: {plain(run['requested_device'])}", _mismatch_phrase(run))]
    return _origin_warnings(run) + _data_warnings(run) + _device_warnings(run) + _precision_warnings(run)


def _origin_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not run["fetched_from"]:
        return []
    made = f"{plain(run['hostname'] or 'an unknown host')} on {moment(run['finished_at'])}"
    reason = (
        f"It was made on {made}, and fetched from {plain(run['fetched_from'])}: its times are those of that machine."
    )
    return [("Not made here", reason)]


def _data_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    used, asked = dataset_name(run["dataset"]), dataset_name(run["requested_dataset"])
    found = []
    if is_stand_in(run):
        generated = f"Generated {units_of_run(run).many} were used instead of {asked}"
        reason = f"{generated}: these figures say nothing about {asked}."
        found.append((f"Stand-in data, not {asked}", reason))
    elif run["dataset"] != run["requested_dataset"]:
        found.append(("Not the requested data", f"{asked} was requested, {used} was used."))
    # Of data without a reference nobody could clear it.
    elif data_verified(run) == "no":
        reason = f"Their content digest is not that of the original {used}. Prepare the data set anew."
        found.append(("Data not verified", reason))
    if left_out := skipped_sentence((run["records"] or {}).get("skipped", {})):
        found.append(("Images left out", left_out))
    return found + _findings(run["evaluation"] or {})


def _findings(evaluation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the records say of the data, and the accuracy without the test images that train holds too."""
    found = [(plain(headline), plain(text, 600)) for headline, text in evaluation.get("data_warnings", ())]
    if without := evaluation.get("without_duplicates"):
        accuracy, all_of_it = (percent(one["accuracy"]) for one in (without, evaluation))
        others = f"On the other {number(without['num_examples'])} test images"
        headline = "Accuracy without the test images in the train split"
        found.append((headline, f"{others} it is {accuracy}, on all {all_of_it}."))
    return found


def _device_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    used, asked = plain(run["effective_device"]), plain(run["requested_device"])
    found = []
    if is_fallback(run):
        reason = f"{asked} was requested, the run used {used}: its time and throughput are those of {used}."
        found.append(("Not the requested device", " ".join([reason, _mismatch_phrase(run)]).strip()))
    if not run["device_verified"]:
        found.append(("Device not verified", f"No measurement shows that the work was done on {used}."))
    return found


def _mismatch_phrase(run: Mapping[str, Any]) -> str:
    if run["mismatch"] is None:
        return ""
    return " ".join(sentence(plain(run["mismatch"][name], 300)) for name in ("cause", "remedy"))


def _precision_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if run["requested_precision"] in ("auto", run["precision"]):
        return []
    used, asked = plain(run["precision"]), plain(run["requested_precision"])
    return [("Not the requested precision", f"{asked} was requested, the run computed in {used}.")]
