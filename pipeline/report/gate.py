"""Gate: whether the runs a report is asked for are as good as its settings demand."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.report.formats import number, percent, plain
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
        runs: the runs asked for; those that were skipped have no figures and are not judged.
        changes: their changes, as history.changes gives them; one whose noise is not known is not judged.

    Returns:
        The demands, whether they were all met (`passed`), and the `failures` in words; None where nothing is demanded.
    """
    if gate == NO_DEMANDS:
        return None
    failures = [*_below(gate.min_val_accuracy, runs), *_worse(gate.max_regression_sigma, changes)]
    return {**asdict(gate), "passed": not failures, "failures": failures}


def _below(demanded: float, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    finished = [run for run in runs if run["status"] == FINISHED] if demanded else []
    return [
        f"test accuracy of run {plain(run['fingerprint'])[:8]}: {percent(run['val_accuracy'], 2)}, demanded are "
        f"at least {percent(demanded, 2)} ([Report] min_val_accuracy)"
        for run in finished
        if run["val_accuracy"] is None or not run["val_accuracy"] >= demanded
    ]


def _worse(allowed: float, changes: Sequence[Mapping[str, Any]]) -> list[str]:
    figures = [(change, change["val_accuracy"]) for change in changes] if allowed else []
    return [
        f"test accuracy of {plain(change['model'])} / {plain(change['recipe'])} fell from "
        f"{percent(figure['baseline'], 2)} to {percent(figure['value'], 2)}, by {number(-figure['sigmas'], 1)} σ, "
        f"allowed are {number(allowed, 1)} ([Report] max_regression_sigma)"
        for change, figure in figures
        if figure["sigmas"] is not None and figure["sigmas"] < -allowed
    ]
