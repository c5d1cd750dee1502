"""Experiments: the overview of them, a line each, and their scoreboards."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.judged import judged
from pipeline.problems.units import units_of_all
from pipeline.report.facts.series import have_curves, series_of
from pipeline.report.wording import rows
from pipeline.report.wording.changes import change_verdict
from pipeline.report.wording.devices import computed_in, device_phrase
from pipeline.report.wording.formats import (
    NO_FIGURE,
    mean_number,
    moment,
    plain,
    plural,
    points,
    sentence,
)
from pipeline.report.wording.runs import network_and_recipe

OVERVIEW_HEADINGS = (
    "experiment",
    "best on the test split",
    "by",
    "newest",
    "change",
    "training time, s",
    "hardware",
)


def overview_rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each experiment in the order of OVERVIEW_HEADINGS, the time and the hardware being those of the best row.

    Empty where there is one alone, whose scoreboard says all of it.
    """
    if len(report["experiments"]) < 2:
        return []
    return [_overview_row(report, one) for one in report["experiments"]]


def _overview_row(report: Mapping[str, Any], experiment: Mapping[str, Any]) -> tuple[str, ...]:
    best = next((row for row in report["scenarios"] if row["fingerprints"][0] == experiment["best"]), None)
    newest = next((run for run in report["runs"] if run["fingerprint"] == experiment["newest"]), None)
    of_the_best = (
        (
            rows.judged_figure(best) or NO_FIGURE,
            f"{network_and_recipe(best)}, {plural(len(best['seeds']), 'run')}",
        )
        if best
        else (NO_FIGURE, NO_FIGURE)
    )
    return (
        plain(experiment["experiment"]),
        *of_the_best,
        f"{rows.judged_figure(newest) or NO_FIGURE}, {moment(newest['finished_at'])}" if newest else NO_FIGURE,
        _change(experiment["change"]),
        mean_number(best["train_seconds"], 2) if best else NO_FIGURE,
        f"{device_phrase(best)}, {computed_in(best)}" if best else NO_FIGURE,
    )


def _change(change: Mapping[str, Any] | None) -> str:
    if change is None or not change["earlier"]:
        return "no earlier run"
    figure = change["val_accuracy"]
    # Beside a loss it would be taken for a change of that.
    what = "" if judged(change["problem"]).figure == "val_accuracy" else "accuracy "
    return f"{what}{points(figure['change'])}, {change_verdict(figure)}"


def sections(report: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The scoreboard of each experiment; one without a row where no run has finished.

    Each has its `name`, `is_current`, the `rate` that its throughput is given in, its `rows`, with each the places of
    its runs among the `drawn` (`series`), and what was `published` elsewhere, by source: `title`, what it left
    `unsaid`, and `rows`.
    """
    ours = [(scenario, rows.scenario_row(scenario, report["current"])) for scenario in report["scenarios"]]
    curves = have_curves(drawn)
    found = [
        {
            "name": plain(one["experiment"]),
            "is_current": one["is_current"],
            "rate": units_of_all(row for row, _ in ours if row["experiment"] == one["experiment"]).rate,
            "rows": [
                {"row": row, "series": series_of(scenario, drawn) if curves else []}
                for scenario, row in ours
                if scenario["experiment"] == one["experiment"]
            ],
            "published": _published(report["published"], one["experiment"]),
        }
        for one in report["experiments"]
    ]
    return found or [{"name": "", "is_current": True, "rate": units_of_all([]).rate, "rows": [], "published": []}]


def _published(published: Sequence[Mapping[str, Any]], experiment: str) -> list[dict[str, Any]]:
    sources: dict[tuple[str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for row in published:
        if row["experiment"] == experiment:
            sources.setdefault((row["source"], tuple(row["unsaid"])), []).append(row)
    return [
        {
            "title": plain(title, 300),
            "unsaid": sentence(f"Unsaid: {'; '.join(plain(one, 200) for one in unsaid)}") if unsaid else "",
            "rows": [rows.published_row(row) for row in mine],
        }
        for (title, unsaid), mine in sources.items()
    ]
