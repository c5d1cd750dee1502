"""Runs: a run in a few words, as legends, rows and tables name it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.facts.reading import is_fallback
from pipeline.report.wording.devices import computed_in
from pipeline.report.wording.formats import dataset_name, number, percent, plain
from pipeline.runs.record import SKIPPED, is_stand_in

# Of a recipe; below 0 in a run that left it to the recipe.
_OVERRIDES = ("learning_rate", "weight_decay", "label_smoothing")
# Of a run that was interrupted more often than anyone reads.
_MOST_RESUMED = 3


def remarks(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Why the figures of a run or a row need care, in a few words each."""
    if run["status"] == SKIPPED:
        return (f"skipped: {plain(run['mismatch']['cause'], 200)}",)
    found = []
    if is_stand_in(run):
        found.append(f"stand-in for {dataset_name(run['requested_dataset'])}")
    if is_fallback(run):
        found.append(f"fallback from {plain(run['requested_device'])}")
    if run.get("fetched_from"):
        found.append("not made here")
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


def network_and_recipe(run: Mapping[str, Any]) -> str:
    """What was trained and how, with what the settings changed of the recipe: the parts divided by " / "."""
    changed = [f"{name.replace('_', ' ')} {run[name]:g}" for name in _OVERRIDES if run.get(name, -1) >= 0]
    return " / ".join([plain(run["model"]), plain(run["recipe"]), *changed])


def inputs(run: Mapping[str, Any]) -> str:
    """What one example is: an image's height, width and channels, a text's length of a sequence; empty if not known."""
    shape = run["input_shape"] or ()
    if len(shape) == 1:
        return f"{units_of_run(run).examples} of {number(shape[0])}"
    return "×".join(map(number, shape))


def mark(fingerprints: Sequence[str], current: Sequence[str]) -> str:
    """What tells a row with the runs asked for from the others."""
    if not set(fingerprints) & set(current):
        return ""
    return "this run" if len(current) == len(fingerprints) == 1 else "requested"


def run_name(run: Mapping[str, Any], current: Sequence[str]) -> str:
    """A run in a few words, as in the legend of the curves."""
    used, asked = plain(run["effective_device"]), plain(run["requested_device"])
    device = used if asked in ("auto", used) else f"{asked} → {used}"
    where = ", ".join([device, computed_in(run), *remarks(run)])
    marked = mark([run["fingerprint"]], current)
    which = f"{plain(run['fingerprint'])[:8]}, batch {number(run['global_batch_size'])}, seed {number(run['seed'])}"
    return f"{network_and_recipe(run)} on {where} ({', '.join(filter(None, [which, marked]))})"


def final_figures(run: Mapping[str, Any]) -> str:
    """The accuracies and losses of the epoch that was kept, the last unless said otherwise, as one phrase."""
    last = next((row for row in run["curves"] if row["epoch"] == run["kept_epoch"]), run["curves"][-1])
    accuracy = f"test accuracy {percent(last['val_accuracy'])} (training {percent(last['accuracy'])})"
    loss = f"test loss {number(last['val_loss'], 3)} (training {number(last['loss'], 3)})"
    return f"after epoch {number(last['epoch'])} {accuracy}, {loss}"


def drawn_note(report: Mapping[str, Any], drawn: int) -> str:
    """Which of the runs are drawn; an empty string where all are."""
    current = {run["experiment"] for run in report["runs"] if run["fingerprint"] in report["current"]}
    shown = [run for run in report["runs"] if not current or run["experiment"] in current]
    total = sum(run["status"] != SKIPPED for run in shown)
    return (
        f"Initially drawn: {drawn} of {total} runs, the requested ones first, then the newest." if drawn < total else ""
    )
