"""Gate: whether the requested runs are as good as the settings require.

Requirements include the requested data and device: a run that was skipped, or that used placeholder data or another
device, is no evidence and fails the gate. While there are too few comparable runs to estimate the noise, a fall of the
accuracy does not fail it; the report then says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from pipeline.report.data.changes import Change, is_beyond
from pipeline.report.data.reading import Run
from pipeline.report.formats import dataset_name, is_fallback, model_and_recipe, number, percent, plain, plural
from pipeline.runs.record import FINISHED


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The requirements. 0: none."""

    min_test_accuracy: float = 0.0
    max_test_loss: float = 0.0
    max_regression_sigma: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome(Gate):
    """The requirements, whether all are met, and in words those that are not or that could not be judged yet."""

    passed: bool
    failures: Sequence[str]
    not_judged: Sequence[str]


def judge_gate(gate: Gate, runs: Sequence[Run], changes: Sequence[Change]) -> Outcome | None:
    """Judge the requested runs and their changes, see `changes.changes`. None without requirements."""
    if gate == Gate():
        return None
    failures = [] if runs else ["No run was requested, so the thresholds cannot be checked"]
    failures += [f"Run {_which(run)} does not count: {reason}" for run in runs if (reason := _no_evidence(run))]
    finished = [run for run in runs if run.status == FINISHED]
    failures += _beyond(gate, finished)
    not_judged = []
    if allowed := gate.max_regression_sigma:
        words = _worse(allowed, finished, changes)
        failures += [f"{one}, allowed: {number(allowed, 1)} σ ([Report] max_regression_sigma)" for one in words]
        not_judged = _not_judged(changes)
    return Outcome(**asdict(gate), passed=not failures, failures=failures, not_judged=not_judged)


def _no_evidence(run: Run) -> str:
    """Why the run shows nothing about the requested data and device. Empty if it does."""
    asked, used = plain(run.requested_device), plain(run.effective_device)
    if run.status != FINISHED:
        return f"skipped because {asked} was requested. {plain(run.mismatch.cause, 200)}"
    if run.dataset != run.requested_dataset:
        data = dataset_name(run.requested_dataset)
        return f"{data} was requested, but the run used {dataset_name(run.dataset)}"
    if is_fallback(run):
        return f"{asked} was requested, but the run used {used}"
    if run.requested_device != "auto" and not run.device_verified:
        return f"{asked} was requested, but no measurement shows that the run used it"
    return ""


def _beyond(gate: Gate, runs: Sequence[Run]) -> Iterator[str]:
    """The runs with a lower accuracy or a higher loss than required, or an unknown one."""
    least, most = gate.min_test_accuracy, gate.max_test_loss
    for run in runs if least else ():
        if run.test_accuracy is None or not run.test_accuracy >= least:
            found, required = percent(run.test_accuracy, 2), f"at least {percent(least, 2)}"
            yield f"Test accuracy of run {_which(run)}: {found}, required: {required} ([Report] min_test_accuracy)"
    for run in runs if most else ():
        if run.test_loss is None or not run.test_loss <= most:
            found, required = number(run.test_loss, 4), f"at most {number(most, 4)}"
            yield f"Test loss of run {_which(run)}: {found}, required: {required} ([Report] max_test_loss)"


def _worse(allowed: float, runs: Sequence[Run], changes: Sequence[Change]) -> Iterator[str]:
    """The runs without a figure to compare, and the falls of the accuracy beyond the noise."""
    yield from (f"Run {_which(run)} has no test accuracy" for run in runs if run.test_accuracy is None)
    compared = {fingerprint for change in changes for fingerprint in change.fingerprints}
    unknown = [run for run in runs if run.fingerprint not in compared]
    yield from (f"The training data of run {_which(run)} are unknown" for run in unknown)
    for change in changes:
        figure = change.test_accuracy
        fell = figure.deviation is not None and (figure.change or 0) < 0
        if fell and is_beyond(figure, allowed):
            sigmas = figure.sigmas
            by = "although earlier runs agree exactly" if sigmas is None else f"by {number(-sigmas, 1)} σ"
            before, now = percent(figure.baseline, 2), percent(figure.value, 2)
            yield f"Test accuracy of {model_and_recipe(change.runs[0])} fell from {before} to {now}, {by}"


def _not_judged(changes: Sequence[Change]) -> list[str]:
    return [
        f"{model_and_recipe(change.runs[0])} has {plural(change.earlier, 'earlier comparable run')}, "
        "too few to estimate the noise of the test accuracy ([Report] max_regression_sigma)"
        for change in changes
        if change.test_accuracy.value is not None and change.test_accuracy.deviation is None
    ]


def _which(run: Run) -> str:
    return plain(run.fingerprint)[:8]
