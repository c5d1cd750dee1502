"""Gate that checks whether the requested runs meet the thresholds of the settings.

A run counts only with a finite test loss, and with the requested data on the requested device. Skipped runs,
placeholder data and fallback devices fail the gate. A drop of the accuracy does not fail it if too few comparable runs
exist to estimate the noise. The report then lists the run as not judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from pipeline.problems.results import results_of
from pipeline.report.data.champion import MAX_FALSE_ALARMS, Comparison
from pipeline.report.data.history import Change, is_beyond
from pipeline.report.data.reading import Run
from pipeline.report.formats import dataset_name, is_fallback, model_and_recipe, number, percent, plain, plural
from pipeline.runs.record import FINISHED


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Thresholds of the gate. 0 disables a threshold."""

    min_test_accuracy: float = 0.0
    max_test_loss: float = 0.0
    max_regression_sigma: float = 0.0
    not_worse: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome(Gate):
    """Thresholds, the verdict on all of them, and descriptions of failed and unjudged ones."""

    passed: bool
    failures: Sequence[str]
    not_judged: Sequence[str]


def judge_gate(
    gate: Gate, runs: Sequence[Run], changes: Sequence[Change], comparison: Comparison | None = None
) -> Outcome | None:
    """Judge the requested runs, their changes and their comparison. Return None without thresholds."""
    if gate == Gate():
        return None
    failures = [] if runs else ["No run was requested, so the thresholds cannot be checked"]
    failures += [f"Run {_short_id(run)} does not count: {reason}" for run in runs if (reason := _objection(run))]
    finished = [run for run in runs if run.status == FINISHED]
    failures += _missed_thresholds(gate, finished)
    not_judged = []
    if limit := gate.max_regression_sigma:
        texts = _regressions(limit, finished, changes)
        failures += [f"{text}, allowed: {number(limit, 1)} σ ([Report] max_regression_sigma)" for text in texts]
        not_judged = [
            f"{model_and_recipe(change.runs[0])} has {plural(change.earlier, 'earlier comparable run')}, "
            "too few to estimate the noise of the test accuracy ([Report] max_regression_sigma)"
            for change in changes
            if change.test_accuracy.value is not None and change.test_accuracy.deviation is None
        ]
    if gate.not_worse and comparison:
        is_failure = comparison.total.is_worse if comparison.total else not comparison.is_expected
        failures += [f"{comparison} Required: p of at least {MAX_FALSE_ALARMS:g} ([Report] not_worse)"] * is_failure
        not_judged += [f"{comparison} ([Report] not_worse)"] * (comparison.is_expected and not comparison.champion)
    return Outcome(**asdict(gate), passed=not failures, failures=failures, not_judged=not_judged)


def _objection(run: Run) -> str:
    """Return the reason why the run cannot confirm the requested data and device, or ""."""
    requested, effective = plain(run.requested_device), plain(run.effective_device)
    if run.status != FINISHED:
        return f"skipped because {requested} was requested. {plain(run.mismatch.cause, 200)}"
    if run.dataset != run.requested_dataset:
        data = dataset_name(run.requested_dataset)
        return f"{data} was requested, but the run used {dataset_name(run.dataset)}"
    if is_fallback(run):
        return f"{requested} was requested, but the run used {effective}"
    if run.test_loss is None:
        return "its test loss is not finite"
    if run.requested_device != "auto" and not run.device_verified:
        return f"{requested} was requested, but no measurement confirms that the run used it"
    return ""


def _missed_thresholds(gate: Gate, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a failure per run whose accuracy or loss is unknown or misses its threshold."""
    for run in runs:
        accuracy, least, loss, most = run.test_accuracy, gate.min_test_accuracy, run.test_loss, gate.max_test_loss
        if least and (accuracy is None or accuracy < least):
            required = f"at least {percent(least, 2)} ([Report] min_test_accuracy)"
            yield f"Test accuracy of run {_short_id(run)}: {percent(accuracy, 2)}, required: {required}"
        if most and (loss is None or loss > most):
            required = f"at most {number(most, 4)} ([Report] max_test_loss)"
            yield f"Test loss of run {_short_id(run)}: {number(loss, 4)}, required: {required}"


def _regressions(max_sigma: float, runs: Sequence[Run], changes: Sequence[Change]) -> Iterator[str]:
    """Yield a failure per run without a comparable accuracy and per drop of the accuracy beyond the noise."""
    compared = {run.fingerprint for change in changes for run in change.runs}
    for run in runs:
        metric = "accuracy" if results_of(run.problem).has_accuracy else "loss"
        if getattr(run, f"test_{metric}") is None:
            yield f"Run {_short_id(run)} has no test {metric}"
        if run.fingerprint not in compared:
            yield f"The training data of run {_short_id(run)} are unknown"
    for change in changes:
        accuracy = change.test_accuracy
        is_lower = accuracy.deviation is not None and (accuracy.change or 0) < 0
        if is_lower and is_beyond(accuracy, max_sigma):
            sigmas = accuracy.sigmas
            size = "although earlier runs agree exactly" if sigmas is None else f"by {number(-sigmas, 1)} σ"
            ends = (accuracy.baseline, accuracy.value)
            texts = [percent(end, 2) if change.has_accuracy else number(-end, 4) for end in ends]
            moved = f"{change.metric} of {model_and_recipe(change.runs[0])} {'fell' if change.has_accuracy else 'rose'}"
            yield f"{moved[0].upper()}{moved[1:]} from {texts[0]} to {texts[1]}, {size}"


def _short_id(run: Run) -> str:
    return plain(run.fingerprint)[:8]
