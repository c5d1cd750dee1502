"""Wording: the sentences of the report, written once so that HTML, Markdown and terminal cannot disagree.

Not yet escaped: see formats.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.report.changes import judge_change
from pipeline.report.formats import (
    NO_FIGURE,
    dataset_name,
    mean_number,
    mean_percent,
    moment,
    number,
    percent,
    plain,
    plural,
    points,
    signed,
    yes_no,
)
from pipeline.report.reading import is_fallback, is_stand_in
from pipeline.runs.record import SKIPPED

# Of a run that was interrupted more often than anyone reads.
_MOST_RESUMED = 3

DEFINITIONS = (
    ("Requested and effective", "what the settings asked for, and what the run really used."),
    ("Verified", "yes only where a measurement that could have failed confirms it; no means unknown. “Yes, as cpu”: "
     "another device was requested, and what is verified is that the run used cpu."),
    ("Stand-in", "generated images, used where the requested dataset is unavailable; they exercise the pipeline and "
     "say nothing about the dataset."),
    ("Fallback", "the requested device was unavailable and the settings allowed training on another."),
    ("Skipped", "the requested device was unavailable and the settings allowed leaving the run out."),
    ("Resumed", "the run was interrupted and another process continued it from its last checkpoint, on the same kind "
     "of hardware; its times are those of all processes, and it is verified where each of them was."),
    ("Mean ± deviation", "over the runs of a row, which differ in their seed alone; the sample standard "
     "deviation. Runs on two kinds of hardware, or of two versions of the code, are two rows; the host is a label."),
    ("Speed-up", "images/s of the row over those of the baseline it names: the newest row on a CPU, or where there is "
     "none the slowest, with the same code, library versions, dataset content and settings. Rows on stand-in data, on "
     "hardware that was not verified or not requested, and published rows, are no baseline and have no speed-up."),
    ("Epoch and step time", "training seconds of an epoch, and those divided by its steps; epochs in which the "
     "model was compiled, the first of each process, are left out, so that a run of one epoch has none."),
    ("Input-bound", "the device waited for images in more than a tenth of a step's time; otherwise the run is "
     "compute-bound."),
    ("Training time", "wall-clock seconds of all training epochs together, the first one included, "
     "evaluation left out (train_seconds)."),
    ("Images/s", "training images per second; without the epochs in which the model was compiled when there are "
     "others (examples_per_second). Published rows: all images over all seconds, the first epoch included."),
    ("Test accuracy", "share of the test images classified correctly after training (val_accuracy in report.json). "
     "The published tutorials call it validation accuracy."),
    ("Validation accuracy", "the same share of images held out of the train split ([Records] validation_share), on "
     "which choices may be made; shown where there are any."),
    ("Precision, recall, F1", "of the images given a label, the share that has it; of those that have it, the share "
     "that was given it; the harmonic mean of both."),
    ("Calibration", "the expected calibration error is the mean distance between how sure the network was and how "
     "often it was right, over 15 bins of confidence, weighted by their images; 0 is perfect."),
    ("σ", "how rare a change is if nothing but noise made it, in standard deviations of a normal distribution; by "
     "Student's t, for the noise is known from few runs: those that differ in their seed alone, or for accuracy, where "
     "there are none, the earlier runs, whose changes of code then count as noise. The noise of accuracy is at least "
     "the sampling error of the test split. Beyond 1.96 σ, which noise alone exceeds in 1 of 20 changes, a change is "
     "called better or worse. Images/s are judged only where the machine was "
     "as fast, by the receipt's probe, to within the noise."),
    ("Comparable runs", "share dataset content, all settings that decide what is measured, and the hardware: device, "
     "replicas, granted cores and memory."),
    ("Loss", "what training minimises, averaged over images; lower is better."),
    ("Batch", "images per optimizer step, over all replicas together (global_batch_size)."),
    ("Fingerprint", "hash of everything a run was made from; the scoreboard shows its first eight digits."),
)  # fmt: skip


def current_runs(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs the report was asked for, in the order asked."""
    return [run for asked_for in report["current"] for run in report["runs"] if run["fingerprint"] == asked_for]


def verdict(report: Mapping[str, Any]) -> str:
    """One sentence on what was asked for."""
    runs = current_runs(report)
    if not runs:
        return "This report is about no run in particular." if report["runs"] else "No run has finished yet."
    return _verdict_on_one(runs[0]) if len(runs) == 1 else _verdict_on_several(report, runs)


def _verdict_on_one(run: Mapping[str, Any]) -> str:
    if run["status"] == SKIPPED:
        return _sentence(
            f"The run on {plain(run['requested_device'])} was skipped: {plain(run['mismatch']['cause'], 300)}"
        )
    return (
        f"{percent(run['val_accuracy'])} test accuracy{_validated(run)} on {_data_phrase(run)} "
        f"after {plural(run['epochs'], 'epoch')}: "
        f"{number(run['train_seconds'], 1)} s of training on {_device_phrase(run)}, "
        f"{number(run['examples_per_second'])} images/s{_bound(run)}."
    )


def _validated(run: Mapping[str, Any]) -> str:
    figure = run.get("validation_accuracy")
    return "" if figure is None else f" ({percent(figure)} validation accuracy)"


def _bound(run: Mapping[str, Any]) -> str:
    return f", {bound}" if (bound := time_verdict(run).partition(":")[0]) else ""


def _verdict_on_several(report: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    finished = [run for run in runs if run["status"] != SKIPPED]
    counts = [f"{len(finished)} finished", f"{len(runs) - len(finished)} skipped"][: 1 + (len(finished) < len(runs))]
    requested = f"{plural(len(runs), 'run')} requested, {', '.join(counts)}"
    if row := _row_of(report, runs):
        return (
            f"{mean_percent(row['val_accuracy'])} test accuracy over {plural(len(runs), 'seed')} on "
            f"{_data_phrase(runs[0])} after {plural(runs[0]['epochs'], 'epoch')}: "
            f"{mean_number(row['train_seconds'], 1)} s of training on {_device_phrase(runs[0])}, "
            f"{mean_number(row['examples_per_second'])} images/s{_bound(runs[0])}."
        )
    data = " and ".join(dict.fromkeys(_data_phrase(run) for run in finished))
    ranges = [
        _range([run["val_accuracy"] for run in finished], percent, f"test accuracy on {data}"),
        _range([run["examples_per_second"] for run in finished], number, "images/s"),
    ]
    return f"{requested}: {', '.join(ranges)}." if finished else f"{requested}."


def _row_of(report: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The scoreboard's row that is these runs and no others, if there is one."""
    asked_for = sorted(run["fingerprint"] for run in runs)
    rows = (row for row in report["scenarios"] if sorted(row["fingerprints"]) == asked_for)
    return next((row for row in rows if row["status"] != SKIPPED), None)


def _range(values: Sequence[float | None], show: Callable[[float | None], str], what: str) -> str:
    known = [value for value in values if value is not None]
    ends = dict.fromkeys(show(end) for end in (min(known), max(known))) if known else [NO_FIGURE]
    return f"{' to '.join(ends)} {what}"


def report_warnings(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was demanded and not met, then the warnings of the runs asked for."""
    failures = (report["gate"] or {}).get("failures", ())
    failed = [("The gate failed", _sentence("; ".join(failures)))] if failures else []
    not_judged = [("Not judged yet", _sentence(words)) for words in (report["gate"] or {}).get("not_judged", ())]
    return [*failed, *not_judged, *warnings(current_runs(report))]


def change_sentences(report: Mapping[str, Any]) -> list[str]:
    """For each group of runs asked for that has comparable ones before it, what has changed."""
    return [_change_sentence(change) for change in report["changes"] if change["earlier"]]


def _change_sentence(change: Mapping[str, Any]) -> str:
    accuracy, rate = change["val_accuracy"], change["examples_per_second"]
    return (
        f"Compared with the last comparable run ({moment(change['since'])}): "
        f"test accuracy {points(accuracy['change'])}, {change_verdict(accuracy)}; "
        f"images/s {signed(rate['change'])}, {change_verdict(rate)}."
    )


def change_verdict(figure: Mapping[str, float | None]) -> str:
    """Whether a change is one, in a few words."""
    words = {
        "new": "no earlier run to compare with",
        "unknown": "too few runs to estimate the noise",
        "noise": "within noise",
        "better": "better",
        "worse": "worse",
        "no reference": "not judged: how fast the machine was is not known",
        "other speed": "not judged: the machine's speed differed",
    }[judge_change(figure)]
    return words if figure["sigmas"] is None else f"{words} ({number(abs(figure['sigmas']), 1)} σ)"


def warnings(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(headline, explanation) for each way the runs' figures may be taken for something they are not, each once."""
    return list(dict.fromkeys(warning for run in runs for warning in _warnings(run)))


def _warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if run["status"] == SKIPPED:
        return [(f"Skipped: {plain(run['requested_device'])}", _mismatch_phrase(run))]
    return _data_warnings(run) + _device_warnings(run) + _precision_warnings(run)


def _data_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    used, asked = dataset_name(run["dataset"]), dataset_name(run["requested_dataset"])
    found = []
    if is_stand_in(run):
        reason = f"Generated images were used instead of {asked}: these figures say nothing about {asked}."
        found.append((f"Stand-in data, not {asked}", reason))
    elif run["dataset"] != run["requested_dataset"]:
        found.append(("Not the requested data", f"{asked} was requested, {used} was used."))
    if not run["dataset_verified"]:
        found.append(("Data not verified", "No measurement shows which images these are."))
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
    return " ".join(_sentence(plain(run["mismatch"][name], 300)) for name in ("cause", "remedy"))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _precision_warnings(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    if run["requested_precision"] in ("auto", run["precision"]):
        return []
    used, asked = plain(run["precision"]), plain(run["requested_precision"])
    return [("Not the requested precision", f"{asked} was requested, the run computed in {used}.")]


def remarks(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the figures of a run or a row need care, in a few words each."""
    if run["status"] == SKIPPED:
        return (f"skipped: {plain(run['mismatch']['cause'], 200)}",)
    found = []
    if is_stand_in(run):
        found.append(f"stand-in for {dataset_name(run['requested_dataset'])}")
    if is_fallback(run):
        found.append(f"fallback from {plain(run['requested_device'])}")
    # A line of a table sums up several rows, whose own remarks say it.
    if resumed := run.get("resumed"):
        found.append(_resumed_phrase(resumed, run["epochs"]))
    return tuple(found)


def _resumed_phrase(resumed: Sequence[Mapping[str, Any]], epochs: int) -> str:
    where = [
        (plain(one["hostname"] or "an unknown host"), number(one["epoch"]) if one["epoch"] <= epochs else "")
        for one in resumed
    ]
    places = list(
        dict.fromkeys(
            f"on {host} from epoch {epoch}" if epoch else f"on {host} after the last epoch" for host, epoch in where
        )
    )
    more = [f"and {len(places) - _MOST_RESUMED} more"] if len(places) > _MOST_RESUMED else []
    return f"resumed {', '.join([*places[:_MOST_RESUMED], *more])}"


def time_verdict(run: Mapping[str, Any]) -> str:
    """Whether a run's steps waited for the device or for the input; empty where that was not measured."""
    share = (run["time_breakdown"] or {}).get("input_wait_share")
    if share is None:
        return ""
    return (
        f"input-bound: {percent(share, 0)} of each step was spent waiting for input" if share > 0.1 else "compute-bound"
    )


def device_verified(run: Mapping[str, Any]) -> str:
    """Whether a run's or row's device is verified, and as what where it is not the one requested."""
    if run["device_verified"] and is_fallback(run):
        return f"yes, as {plain(run['effective_device'])}"
    return yes_no(run["device_verified"])


def device_note(run: Mapping[str, Any]) -> str:
    """What is known of a run's device beyond its kind: its name, and the replicas where there are several."""
    replicas = f"{number(run['num_replicas'])} replicas" if run["num_replicas"] > 1 else ""
    return ", ".join(part for part in (plain(run["device_name"] or ""), replicas) if part)


def mark(fingerprints: Sequence[str], current: Sequence[str]) -> str:
    """What tells a row with the runs asked for from the others."""
    if not set(fingerprints) & set(current):
        return ""
    return "this run" if len(current) == len(fingerprints) == 1 else "requested"


def run_name(run: Mapping[str, Any], current: Sequence[str]) -> str:
    """A run in a few words, as in the legend of the curves."""
    used, asked = plain(run["effective_device"]), plain(run["requested_device"])
    device = used if asked in ("auto", used) else f"{asked} → {used}"
    where = ", ".join([device, plain(run["precision"]), *remarks(run)])
    marked = mark([run["fingerprint"]], current)
    which = f"{plain(run['fingerprint'])[:8]}, batch {number(run['global_batch_size'])}, seed {number(run['seed'])}"
    return f"{plain(run['model'])} / {plain(run['recipe'])} on {where} ({', '.join(filter(None, [which, marked]))})"


def final_figures(run: Mapping[str, Any]) -> str:
    """The last epoch's accuracies and losses as one phrase."""
    last = run["curves"][-1]
    accuracy = f"test accuracy {percent(last['val_accuracy'])} (training {percent(last['accuracy'])})"
    loss = f"test loss {number(last['val_loss'], 3)} (training {number(last['loss'], 3)})"
    return f"after epoch {number(last['epoch'])} {accuracy}, {loss}"


def drawn_note(report: Mapping[str, Any], drawn: int) -> str:
    """Which of the runs are drawn; an empty string where all are."""
    total = sum(run["status"] != SKIPPED for run in report["runs"])
    return (
        f"Initially drawn: {drawn} of {total} runs, the requested ones first, then the newest." if drawn < total else ""
    )


def _data_phrase(run: Mapping[str, Any]) -> str:
    verified = "verified" if run["dataset_verified"] else "unverified"
    stand_in = f" data (a stand-in for {dataset_name(run['requested_dataset'])})" if is_stand_in(run) else ""
    return f"{verified} {plain(run['dataset'])}{stand_in}"


def _device_phrase(run: Mapping[str, Any]) -> str:
    note = device_note(run)
    device = f"{plain(run['effective_device'])} ({note})" if note else plain(run["effective_device"])
    return device if run["device_verified"] else f"unverified {device}"
