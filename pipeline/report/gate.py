"""Gate: whether the runs a report is asked for are shown to be as good as its settings demand.

Where anything is demanded, so are the requested data and device: a run that was skipped, or that used a stand-in or
another device, shows nothing about what was asked for, and fails the gate. A regression alone does not fail it while
too few comparable runs tell the noise: the first runs of a schedule have none before them. The report then says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.report.formats import dataset_name, number, percent, plain, plural
from pipeline.report.reading import is_fallback
from pipeline.runs.record import FINISHED


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What is demanded; 0: nothing."""

    min_val_accuracy: float = 0.0
    max_regression_sigma: float = 0.0


NO_DEMANDS = Gate()


def judge_gate(
    gate: Gate, runs: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """What of the gate's demands the runs do not meet.

    Args:
        gate: the demands.
        runs: the runs asked for.
        changes: their changes, as changes.changes gives them.

    Returns:
        The demands, whether they were all met (`passed`), the `failures` in words, and in `not_judged` what could not
        be judged yet; None where nothing is demanded.
    """
    if gate == NO_DEMANDS:
        return None
    failures = [
        *([] if runs else ["no run was asked for: nothing shows that the demands are met"]),
        *_without_evidence(runs),
        *_below(gate.min_val_accuracy, runs),
        *_worse(gate.max_regression_sigma, runs, changes),
    ]
    not_judged = _not_judged(gate.max_regression_sigma, changes)
    return {**asdict(gate), "passed": not failures, "failures": failures, "not_judged": not_judged}


def _without_evidence(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [(run, reason) for run in runs if (reason := _no_evidence(run))]
    return [f"run {plain(run['fingerprint'])[:8]} is no evidence: {reason}" for run, reason in found]


def _no_evidence(run: Mapping[str, Any]) -> str | None:
    """Why the run says nothing about the data and device that were asked for; None where it does."""
    asked_for = plain(run["requested_device"])
    if run["status"] != FINISHED:
        return f"skipped, for {asked_for} was requested and {plain(run['mismatch']['cause'], 200)}"
    if run["dataset"] != run["requested_dataset"]:
        used, requested = dataset_name(run["dataset"]), dataset_name(run["requested_dataset"])
        return f"{requested} was requested, it was trained on {used}"
    if is_fallback(run):
        return f"{asked_for} was requested, it was trained on {plain(run['effective_device'])}"
    if asked_for != "auto" and not run["device_verified"]:
        return f"{asked_for} was requested, and nothing that was measured shows that it was used"
    return None


def _below(demanded: float, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    finished = [run for run in runs if run["status"] == FINISHED] if demanded else []
    return [
        f"test accuracy of run {plain(run['fingerprint'])[:8]}: {percent(run['val_accuracy'], 2)}, demanded are "
        f"at least {percent(demanded, 2)} ([Report] min_val_accuracy)"
        for run in finished
        if run["val_accuracy"] is None or not run["val_accuracy"] >= demanded
    ]


def _worse(allowed: float, runs: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not allowed:
        return []
    demanded = f"allowed are {number(allowed, 1)} ([Report] max_regression_sigma)"
    compared = {fingerprint for change in changes for fingerprint in change["fingerprints"]}
    diverged = [run for run in runs if run["status"] == FINISHED and run["val_accuracy"] is None]
    unknown = [run for run in runs if run["status"] == FINISHED and run["fingerprint"] not in compared]
    return [
        *(f"run {plain(run['fingerprint'])[:8]} has no accuracy to compare, {demanded}" for run in diverged),
        *(f"what run {plain(run['fingerprint'])[:8]} was trained on is not known, {demanded}" for run in unknown),
        *(
            f"test accuracy of {_name(change)} fell from {percent(figure['baseline'], 2)} to "
            f"{percent(figure['value'], 2)}, {_by(figure)}, {demanded}"
            for change in changes
            if _fell((figure := change["val_accuracy"]), allowed)
        ),
    ]


def _fell(figure: Mapping[str, Any], allowed: float) -> bool:
    if figure["deviation"] is None or figure["change"] is None:
        return False
    # Where the earlier runs came out exactly alike on an unknown number of examples, any fall is more than their noise.
    return figure["sigmas"] < -allowed if figure["sigmas"] is not None else figure["change"] < 0


def _by(figure: Mapping[str, Any]) -> str:
    sigmas = figure["sigmas"]
    return "where the earlier runs did not differ" if sigmas is None else f"by {number(-sigmas, 1)} σ"


def _not_judged(allowed: float, changes: Sequence[Mapping[str, Any]]) -> list[str]:
    waiting = [
        change
        for change in changes
        if allowed and change["val_accuracy"]["value"] is not None and change["val_accuracy"]["deviation"] is None
    ]
    return [
        f"whether the accuracy of {_name(change)} fell: {plural(change['earlier'], 'comparable run')} before, "
        "too few to know the noise ([Report] max_regression_sigma)"
        for change in waiting
    ]


def _name(change: Mapping[str, Any]) -> str:
    return f"{plain(change['model'])} / {plain(change['recipe'])}"
