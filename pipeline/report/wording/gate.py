"""Gate: which demands are not met, in words."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pipeline.report.facts.gate import Failure, Gate, Outcome, Reason
from pipeline.report.wording.formats import dataset_name, number, percent, plain, plural
from pipeline.report.wording.runs import network_and_recipe


def gate_part(outcome: Outcome | None) -> dict[str, Any] | None:
    """The gate as report.json has it.

    That is its demands, whether they were all met (`passed`), the `failures` in words, and in `not_judged` what could
    not be judged yet; None where nothing is demanded.
    """
    if outcome is None:
        return None
    return {
        **asdict(outcome.gate),
        "passed": not outcome.failures,
        "failures": [_failure(failure, outcome.gate) for failure in outcome.failures],
        "not_judged": [_not_judged(change) for change in outcome.not_judged],
    }


def _failure(failure: Failure, gate: Gate) -> str:
    if failure.reason is Reason.NO_RUN:
        return "no run was asked for: nothing shows that the demands are met"
    if failure.reason is Reason.TOO_LOW:
        return _too_low(failure.about, gate.min_val_accuracy)
    if failure.reason is Reason.TOO_HIGH:
        return _too_high(failure.about, gate.max_val_loss)
    if failure.reason in _REGRESSIONS:
        allowed = f"allowed are {number(gate.max_regression_sigma, 1)} ([Report] max_regression_sigma)"
        return f"{_REGRESSIONS[failure.reason](failure.about)}, {allowed}"
    return f"run {_which(failure.about)} is no evidence: {_NO_EVIDENCE[failure.reason](failure.about)}"


def _skipped(run: Mapping[str, Any]) -> str:
    return f"skipped, for {_requested(run)} was requested and {plain(run['mismatch']['cause'], 200)}"


def _other_data(run: Mapping[str, Any]) -> str:
    return f"{dataset_name(run['requested_dataset'])} was requested, it was trained on {dataset_name(run['dataset'])}"


def _other_device(run: Mapping[str, Any]) -> str:
    return f"{_requested(run)} was requested, it was trained on {plain(run['effective_device'])}"


def _device_not_verified(run: Mapping[str, Any]) -> str:
    return f"{_requested(run)} was requested, and nothing that was measured shows that it was used"


def _too_low(run: Mapping[str, Any], demanded: float) -> str:
    return (
        f"test accuracy of run {_which(run)}: {percent(run['val_accuracy'], 2)}, demanded are "
        f"at least {percent(demanded, 2)} ([Report] min_val_accuracy)"
    )


def _too_high(run: Mapping[str, Any], allowed: float) -> str:
    return (
        f"test loss of run {_which(run)}: {number(run['val_loss'], 4)}, demanded are "
        f"at most {number(allowed, 4)} ([Report] max_val_loss)"
    )


def _no_accuracy(run: Mapping[str, Any]) -> str:
    return f"run {_which(run)} has no accuracy to compare"


def _unknown_data(run: Mapping[str, Any]) -> str:
    return f"what run {_which(run)} was trained on is not known"


def _fell(change: Mapping[str, Any]) -> str:
    figure = change["val_accuracy"]
    sigmas = figure["sigmas"]
    by = "where the earlier runs did not differ" if sigmas is None else f"by {number(-sigmas, 1)} σ"
    before, now = percent(figure["baseline"], 2), percent(figure["value"], 2)
    return f"test accuracy of {_name(change)} fell from {before} to {now}, {by}"


_Words = Callable[[Mapping[str, Any]], str]
_NO_EVIDENCE: Mapping[Reason, _Words] = {
    Reason.SKIPPED: _skipped,
    Reason.OTHER_DATA: _other_data,
    Reason.OTHER_DEVICE: _other_device,
    Reason.DEVICE_NOT_VERIFIED: _device_not_verified,
}
_REGRESSIONS: Mapping[Reason, _Words] = {
    Reason.NO_ACCURACY: _no_accuracy,
    Reason.UNKNOWN_DATA: _unknown_data,
    Reason.FELL: _fell,
}


def _not_judged(change: Mapping[str, Any]) -> str:
    return (
        f"whether the accuracy of {_name(change)} fell: {plural(change['earlier'], 'comparable run')} before, "
        "too few to know the noise ([Report] max_regression_sigma)"
    )


def _requested(run: Mapping[str, Any]) -> str:
    return plain(run["requested_device"])


def _which(run: Mapping[str, Any]) -> str:
    return plain(run["fingerprint"])[:8]


def _name(change: Mapping[str, Any]) -> str:
    return network_and_recipe(change)
