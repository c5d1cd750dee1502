"""Wording: the sentences of the report, written once so that HTML, Markdown and terminal cannot disagree.

Not yet escaped: see formats.py.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.report.formats import dataset_name, number, percent, plain

DEFINITIONS = (
    ("Requested and effective", "what the settings asked for, and what the run really used."),
    ("Verified", "yes only where something was measured that could have come out otherwise; no means "
     "unknown."),
    ("Stand-in", "generated images, used where the requested dataset could not be had; they try out the "
     "pipeline and say nothing about the dataset."),
    ("Training time", "wall-clock seconds of all training epochs together, the first one included, "
     "evaluation left out (train_seconds)."),
    ("Images/s", "training images per second; without the first epoch, which compiles, when there are more "
     "(examples_per_second). Published rows: all images over all seconds, the first epoch included."),
    ("Validation accuracy", "share of the validation images classified correctly after training "
     "(val_accuracy)."),
    ("Loss", "what training minimises, averaged over images; lower is better."),
    ("Batch", "images per optimizer step, over all replicas together (global_batch_size)."),
    ("Fingerprint", "hash of everything a run was made from; the scoreboard shows its first eight digits."),
)  # fmt: skip


def current_run(report: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The run the report was asked for; None where no run was named."""
    return next((run for run in report["runs"] if run["fingerprint"] == report["current"]), None)


def verdict(report: Mapping[str, Any]) -> str:
    """One sentence on the current run."""
    run = current_run(report)
    if run is None:
        return "This report is about no run in particular." if report["runs"] else "No run has finished yet."
    epochs = f"{number(run['epochs'])} epoch{'' if run['epochs'] == 1 else 's'}"
    return (
        f"{percent(run['val_accuracy'])} validation accuracy on {_data_phrase(run)} after {epochs}: "
        f"{number(run['train_seconds'], 1)} s of training on {_device_phrase(run)}, "
        f"{number(run['examples_per_second'])} images/s."
    )


def warnings(run: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(headline, explanation) for each way a run's figures may be taken for something they are not."""
    if run is None:
        return []
    return _data_warnings(run) + _device_warnings(run) + _precision_warnings(run)


def _data_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    used, asked = dataset_name(run["dataset"]), dataset_name(run["requested_dataset"])
    found = []
    if is_stand_in(run):
        reason = f"Generated images took the place of {asked}: these figures say nothing about {asked}."
        found.append((f"Stand-in data, not {asked}", reason))
    elif run["dataset"] != run["requested_dataset"]:
        found.append(("Not the requested data", f"{asked} was requested, {used} was used."))
    if not run["dataset_verified"]:
        found.append(("Data not verified", "Nothing that was measured shows which images these are."))
    return found


def _device_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    used, asked = plain(run["effective_device"]), plain(run["requested_device"])
    found = []
    if run["requested_device"] not in ("auto", run["effective_device"]):
        reason = f"{asked} was requested, the run used {used}: its time and throughput are those of {used}."
        found.append(("Not the requested device", reason))
    if not run["device_verified"]:
        found.append(("Device not verified", f"Nothing that was measured shows the work was done on {used}."))
    return found


def _precision_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if run["requested_precision"] in ("auto", run["precision"]):
        return []
    used, asked = plain(run["precision"]), plain(run["requested_precision"])
    return [("Not the requested precision", f"{asked} was requested, the run computed in {used}.")]


def is_stand_in(run: Mapping[str, Any]) -> bool:
    """Whether generated images took the place of the dataset asked for."""
    return run["dataset"] == "synthetic" and run["requested_dataset"] != "synthetic"


def device_note(run: Mapping[str, Any]) -> str:
    """What is known of a run's device beyond its kind: its name, and the replicas where there are several."""
    replicas = f"{number(run['num_replicas'])} replicas" if run["num_replicas"] != 1 else ""
    return ", ".join(part for part in (plain(run["device_name"] or ""), replicas) if part)


def run_name(run: Mapping[str, Any], current: str | None) -> str:
    """A run in a few words, as in the legend of the curves."""
    stand_in = f", stand-in for {dataset_name(run['requested_dataset'])}" if is_stand_in(run) else ""
    mark = ", this run" if run["fingerprint"] == current else ""
    where = f"{plain(run['effective_device'])}, {plain(run['precision'])}{stand_in}"
    which = f"{plain(run['fingerprint'])[:8]}{mark}"
    return f"{plain(run['model'])} / {plain(run['recipe'])} on {where} ({which})"


def final_figures(run: Mapping[str, Any]) -> str:
    """The last epoch's accuracies and losses as one phrase."""
    last = run["curves"][-1]
    accuracy = f"validation accuracy {percent(last['val_accuracy'])} (training {percent(last['accuracy'])})"
    loss = f"validation loss {number(last['val_loss'], 3)} (training {number(last['loss'], 3)})"
    return f"after epoch {number(last['epoch'])} {accuracy}, {loss}"


def drawn_note(report: Mapping[str, Any], drawn: int) -> str:
    """Which of the runs are drawn; an empty string where all are."""
    total = len(report["runs"])
    return f"Drawn are {drawn} of {total} runs: the newest, and always this one." if drawn < total else ""


def _data_phrase(run: Mapping[str, Any]) -> str:
    verified = "verified" if run["dataset_verified"] else "unverified"
    stand_in = f" data (a stand-in for {dataset_name(run['requested_dataset'])})" if is_stand_in(run) else ""
    return f"{verified} {plain(run['dataset'])}{stand_in}"


def _device_phrase(run: Mapping[str, Any]) -> str:
    note = device_note(run)
    device = f"{plain(run['effective_device'])} ({note})" if note else plain(run["effective_device"])
    return device if run["device_verified"] else f"unverified {device}"
