"""Gate: whether the runs a report is asked for are shown to be as good as its settings demand.

Where anything is demanded, so are the requested data and device: a run that was skipped, or that used a stand-in or
another device, shows nothing about what was asked for, and fails the gate. A regression alone does not fail it while
there are too few comparable runs to estimate the noise: the first runs of a schedule have none before them. The
report then says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipeline.report.facts.reading import is_fallback
from pipeline.runs.record import FINISHED


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What is demanded; 0: nothing."""

    min_val_accuracy: float = 0.0
    max_val_loss: float = 0.0
    max_regression_sigma: float = 0.0


NO_DEMANDS = Gate()


class Reason(StrEnum):
    """Why a demand is not met."""

    NO_RUN = "no run was asked for"
    SKIPPED = "the run was skipped"
    OTHER_DATA = "the run used other data"
    OTHER_DEVICE = "the run used another device"
    DEVICE_NOT_VERIFIED = "the run's device is not verified"
    TOO_LOW = "the accuracy is too low"
    TOO_HIGH = "the loss is too high"
    NO_ACCURACY = "the run has no accuracy to compare"
    UNKNOWN_DATA = "what the run was trained on is not known"
    FELL = "the accuracy fell"


@dataclass(frozen=True)
class Failure:
    """A demand that is not met, and the run it is about, or the change where the accuracy fell."""

    reason: Reason
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What of a gate's demands is not met, and the changes of which that could not be judged yet."""

    gate: Gate
    failures: Sequence[Failure]
    not_judged: Sequence[Mapping[str, Any]]


def judge_gate(gate: Gate, runs: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]) -> Outcome | None:
    """What of the gate's demands the runs do not meet.

    Args:
        gate: the demands.
        runs: the runs asked for.
        changes: their changes, as changes.changes gives them.

    Returns:
        None where nothing is demanded.
    """
    if gate == NO_DEMANDS:
        return None
    failures = [
        *([] if runs else [Failure(Reason.NO_RUN, {})]),
        *(Failure(reason, run) for run in runs if (reason := _no_evidence(run))),
        *_below(gate.min_val_accuracy, runs),
        *_above(gate.max_val_loss, runs),
        *_worse(gate.max_regression_sigma, runs, changes),
    ]
    return Outcome(gate, failures, _not_judged(gate.max_regression_sigma, changes))


def _no_evidence(run: Mapping[str, Any]) -> Reason | None:
    """Why the run says nothing about the data and device that were asked for; None where it does."""
    if run["status"] != FINISHED:
        return Reason.SKIPPED
    if run["dataset"] != run["requested_dataset"]:
        return Reason.OTHER_DATA
    if is_fallback(run):
        return Reason.OTHER_DEVICE
    if run["requested_device"] != "auto" and not run["device_verified"]:
        return Reason.DEVICE_NOT_VERIFIED
    return None


def _below(demanded: float, runs: Sequence[Mapping[str, Any]]) -> list[Failure]:
    finished = [run for run in runs if run["status"] == FINISHED] if demanded else []
    return [
        Failure(Reason.TOO_LOW, run)
        for run in finished
        if run["val_accuracy"] is None or not run["val_accuracy"] >= demanded
    ]


def _above(allowed: float, runs: Sequence[Mapping[str, Any]]) -> list[Failure]:
    finished = [run for run in runs if run["status"] == FINISHED] if allowed else []
    return [
        Failure(Reason.TOO_HIGH, run) for run in finished if run["val_loss"] is None or not run["val_loss"] <= allowed
    ]


def _worse(allowed: float, runs: Sequence[Mapping[str, Any]], changes: Sequence[Mapping[str, Any]]) -> list[Failure]:
    if not allowed:
        return []
    compared = {fingerprint for change in changes for fingerprint in change["fingerprints"]}
    finished = [run for run in runs if run["status"] == FINISHED]
    return [
        *(Failure(Reason.NO_ACCURACY, run) for run in finished if run["val_accuracy"] is None),
        *(Failure(Reason.UNKNOWN_DATA, run) for run in finished if run["fingerprint"] not in compared),
        *(Failure(Reason.FELL, change) for change in changes if _fell(change["val_accuracy"], allowed)),
    ]


def _fell(figure: Mapping[str, Any], allowed: float) -> bool:
    if figure["deviation"] is None or figure["change"] is None:
        return False
    # Where the earlier runs came out exactly alike on an unknown number of examples, any fall is more than their noise.
    return figure["sigmas"] < -allowed if figure["sigmas"] is not None else figure["change"] < 0


def _not_judged(allowed: float, changes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    figures = [(change, change["val_accuracy"]) for change in changes if allowed]
    return [change for change, figure in figures if figure["value"] is not None and figure["deviation"] is None]
