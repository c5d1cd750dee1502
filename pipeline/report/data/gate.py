"""Gate: whether the requested runs are as good as the settings require.

Requirements include the requested data and device: a run that was skipped, or that used placeholder data or another
device, is no evidence and fails the gate. While there are too few comparable runs to estimate the noise, a fall of the
accuracy does not fail it; the report then says so.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pipeline.report.formats import Run, dataset_name, is_fallback, model_and_recipe, number, percent, plain, plural
from pipeline.runs.record import FINISHED


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The requirements. 0: none."""

    min_val_accuracy: float = 0.0
    max_val_loss: float = 0.0
    max_regression_sigma: float = 0.0


NO_DEMANDS = Gate()


@dataclass(frozen=True, kw_only=True)
class Outcome(Gate):
    """The requirements, whether all are met, and in words those that are not or that could not be judged yet."""

    passed: bool
    failures: Sequence[str]
    not_judged: Sequence[str]


def judge_gate(gate: Gate, runs: Sequence[Run], changes: Sequence[Run]) -> Outcome | None:
    """Judge the requested runs and their changes, see `changes.changes`. None without requirements."""
    if gate == NO_DEMANDS:
        return None
    finished = [run for run in runs if run["status"] == FINISHED]
    failures = [
        *([] if runs else ["no run was asked for: nothing shows that the demands are met"]),
        *(f"run {_which(run)} is no evidence: {reason}" for run in runs if (reason := _no_evidence(run))),
        *_below(gate.min_val_accuracy, finished),
        *_above(gate.max_val_loss, finished),
        *_worse(gate.max_regression_sigma, finished, changes),
    ]
    not_judged = _not_judged(changes) if gate.max_regression_sigma else []
    return Outcome(**asdict(gate), passed=not failures, failures=failures, not_judged=not_judged)


def _no_evidence(run: Run) -> str:
    """Why the run says nothing about the requested data and device. Empty if it does."""
    asked, used = plain(run["requested_device"]), plain(run["effective_device"])
    if run["status"] != FINISHED:
        return f"skipped, for {asked} was requested and {plain(run['mismatch']['cause'], 200)}"
    if run["dataset"] != run["requested_dataset"]:
        data = dataset_name(run["requested_dataset"])
        return f"{data} was requested, it was trained on {dataset_name(run['dataset'])}"
    if is_fallback(run):
        return f"{asked} was requested, it was trained on {used}"
    if run["requested_device"] != "auto" and not run["device_verified"]:
        return f"{asked} was requested, and nothing that was measured shows that it was used"
    return ""


def _below(required: float, runs: Sequence[Run]) -> list[str]:
    return [
        f"test accuracy of run {_which(run)}: {percent(run['val_accuracy'], 2)}, demanded are "
        f"at least {percent(required, 2)} ([Report] min_val_accuracy)"
        for run in runs
        if required and (run["val_accuracy"] is None or not run["val_accuracy"] >= required)
    ]


def _above(allowed: float, runs: Sequence[Run]) -> list[str]:
    return [
        f"test loss of run {_which(run)}: {number(run['val_loss'], 4)}, demanded are "
        f"at most {number(allowed, 4)} ([Report] max_val_loss)"
        for run in runs
        if allowed and (run["val_loss"] is None or not run["val_loss"] <= allowed)
    ]


def _worse(allowed: float, runs: Sequence[Run], changes: Sequence[Run]) -> list[str]:
    if not allowed:
        return []
    compared = {fingerprint for change in changes for fingerprint in change["fingerprints"]}
    found = [
        *(f"run {_which(run)} has no accuracy to compare" for run in runs if run["val_accuracy"] is None),
        *(f"what run {_which(run)} was trained on is not known" for run in runs if run["fingerprint"] not in compared),
        *(_fall(change) for change in changes if _fell(change["val_accuracy"], allowed)),
    ]
    return [f"{words}, allowed are {number(allowed, 1)} ([Report] max_regression_sigma)" for words in found]


def _fell(figure: Run, allowed: float) -> bool:
    if figure["deviation"] is None or figure["change"] is None:
        return False
    # If the earlier runs were exactly alike on an unknown number of examples, any fall is more than their noise.
    return figure["sigmas"] < -allowed if figure["sigmas"] is not None else figure["change"] < 0


def _fall(change: Run) -> str:
    figure = change["val_accuracy"]
    sigmas = figure["sigmas"]
    by = "where the earlier runs did not differ" if sigmas is None else f"by {number(-sigmas, 1)} σ"
    before, now = percent(figure["baseline"], 2), percent(figure["value"], 2)
    return f"test accuracy of {model_and_recipe(change)} fell from {before} to {now}, {by}"


def _not_judged(changes: Sequence[Run]) -> list[str]:
    figures = [(change, change["val_accuracy"]) for change in changes]
    return [
        f"whether the accuracy of {model_and_recipe(change)} fell: "
        f"{plural(change['earlier'], 'comparable run')} before, "
        "too few to know the noise ([Report] max_regression_sigma)"
        for change, figure in figures
        if figure["value"] is not None and figure["deviation"] is None
    ]


def _which(run: Run) -> str:
    return plain(run["fingerprint"])[:8]
