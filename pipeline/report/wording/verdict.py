"""Verdict: one sentence on what the report was asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report.facts.scoreboard import current_runs
from pipeline.report.wording.devices import data_phrase, device_phrase
from pipeline.report.wording.formats import (
    NO_FIGURE,
    mean_number,
    mean_percent,
    number,
    percent,
    plain,
    plural,
    sentence,
)
from pipeline.report.wording.times import time_verdict
from pipeline.runs.record import SKIPPED


def verdict(report: Mapping[str, Any]) -> str:
    """One sentence on what was asked for."""
    runs = current_runs(report)
    if not runs:
        return "This report is about no run in particular." if report["runs"] else "No run has finished yet."
    return _verdict_on_one(runs[0]) if len(runs) == 1 else _verdict_on_several(report, runs)


def _verdict_on_one(run: Mapping[str, Any]) -> str:
    if run["status"] == SKIPPED:
        return sentence(
            f"The run on {plain(run['requested_device'])} was skipped: {plain(run['mismatch']['cause'], 300)}"
        )
    return (
        f"{_loss_phrase(run, run['val_loss'], number)}"
        f"{percent(run['val_accuracy'])} test accuracy{_validated(run)} on {data_phrase(run)} "
        f"after {plural(run['epochs'], 'epoch')}: "
        f"{number(run['train_seconds'], 1)} s of training on {device_phrase(run)}, "
        f"{number(run['examples_per_second'])} {units_of_run(run).rate}{_bound(run)}."
    )


def _loss_phrase(run: Mapping[str, Any], loss: Any, show: Callable[[Any, int], str]) -> str:
    """Of a text the test loss comes first."""
    return f"{show(loss, 3)} nats a {units_of_run(run).one}, " if run["problem"] == NEXT_TOKEN else ""


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
            f"{_loss_phrase(runs[0], row['val_loss'], mean_number)}"
            f"{mean_percent(row['val_accuracy'])} test accuracy over {plural(len(runs), 'seed')} on "
            f"{data_phrase(runs[0])} after {plural(runs[0]['epochs'], 'epoch')}: "
            f"{mean_number(row['train_seconds'], 1)} s of training on {device_phrase(runs[0])}, "
            f"{mean_number(row['examples_per_second'])} {units_of_run(runs[0]).rate}{_bound(runs[0])}."
        )
    data = " and ".join(dict.fromkeys(data_phrase(run) for run in finished))
    rates = " or ".join(dict.fromkeys(units_of_run(run).rate for run in finished))
    ranges = [
        _range([run["val_accuracy"] for run in finished], percent, f"test accuracy on {data}"),
        _range([run["examples_per_second"] for run in finished], number, rates),
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
