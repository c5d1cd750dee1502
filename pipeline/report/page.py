"""Page: the report's data to what its templates place; all but the drawings is still to be escaped."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pipeline.report import details, rows, wording
from pipeline.report.bars import draw_calibration, draw_labels
from pipeline.report.curves import draw_batch_sizes, draw_curves, draw_history
from pipeline.report.drawing import MARKERS, MAX_LINES
from pipeline.report.formats import number, percent, plain, plural, spread
from pipeline.report.reading import is_stand_in
from pipeline.runs.record import FINISHED

# Beyond these a page would be longer than anyone reads; report.json holds them all.
_MAX_RUN_PARTS = 24
_MAX_DRAWN = 24
# Drawings of each run beyond these would make up most of the page; their figures are there as text.
_MAX_RUN_DRAWINGS = 8
_MAX_EVIDENCE = 100
_MAX_DRAWN_LABELS = 40


def page_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the templates place, by the names they use."""
    runs, drawn = wording.current_runs(report), _drawn(report)
    parts = [
        {
            **_run_part(run, _pictures_of(report, run), with_drawings=place < _MAX_RUN_DRAWINGS),
            "exports": details.export_rows(report["exports"].get(run["fingerprint"])),
        }
        for place, run in enumerate(runs[:_MAX_RUN_PARTS])
    ]
    return {
        "verdict": wording.verdict(report),
        "changes": wording.change_sentences(report),
        "warnings": wording.report_warnings(report),
        "alarm": any(is_stand_in(run) for run in runs) or bool((report["gate"] or {}).get("failures")),
        "definitions": wording.DEFINITIONS,
        "rows": [rows.scenario_row(scenario, report["current"]) for scenario in report["scenarios"]],
        "series_of_rows": [_series(scenario, drawn) if _have_curves(drawn) else [] for scenario in report["scenarios"]],
        "published": [rows.published_row(row) for row in report["published"]],
        "published_source": next((row["source"] for row in report["published"]), ""),
        "batch_headings": rows.BATCH_HEADINGS,
        "batch_tables": [_batch_part(table) for table in report["batch_sizes"]],
        **_curves_part(report, drawn),
        "runs": parts,
        "runs_left_out": _left_out(len(runs) - _MAX_RUN_PARTS, "more run"),
        "records": _records_part(report, runs),
        "history": _history_part(report),
        "lineage": details.lineage_rows(report["lineage"]),
        "epoch_headings": details.EPOCH_HEADINGS,
        "export_headings": details.EXPORT_HEADINGS,
        "markers": [marker for _, marker in MARKERS],
    }


def _run_part(run: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], *, with_drawings: bool) -> dict[str, Any]:
    shown, evidence = spread(run["curves"]), details.evidence(run)
    return {
        "name": wording.run_name(run, []),
        "tiles": details.tiles(run),
        "receipt": details.receipt(run),
        "circumstances": details.circumstances(run),
        "time_verdict": wording.time_verdict(run),
        "times": details.time_rows(run),
        **_seconds_part(run),
        "evidence": evidence[:_MAX_EVIDENCE],
        "evidence_left_out": _left_out(len(evidence) - _MAX_EVIDENCE, "more line"),
        "epochs": details.epoch_rows(shown),
        "epochs_left_out": _left_out(len(run["curves"]) - len(shown), "more epoch"),
        "evaluation": _evaluation_part(run, pictures, with_drawing=with_drawings) if run["evaluation"] else None,
    }


def _seconds_part(run: Mapping[str, Any]) -> dict[str, Any]:
    parts = [(what, max(0.0, seconds)) for what, seconds in details.seconds_by_part(run)]
    total = sum(seconds for _, seconds in parts)
    if not (math.isfinite(total) and total):
        return {"seconds_shares": [], "seconds_words": "", "seconds_legend": []}
    legend = [f"{what}: {number(seconds, 1)} s" for what, seconds in parts]
    return {
        "seconds_shares": [f"{100 * seconds / total:.2f}" for _, seconds in parts],
        "seconds_words": f"Time breakdown of {wording.run_name(run, [])}: {'; '.join(legend)}.",
        "seconds_legend": legend,
    }


def _evaluation_part(
    run: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], *, with_drawing: bool
) -> dict[str, Any]:
    facts = run["evaluation"]
    error = percent(facts["expected_calibration_error"])
    bins = [one for one in facts["calibration"] if one["accuracy"] is not None]
    ends = "; ".join(f"confidence {percent(one['confidence'])}: right {percent(one['accuracy'])}" for one in bins)
    of_what = f"{wording.run_name(run, [])} over {number(facts['num_examples'])} images"
    alternative = f"Calibration of {of_what}, expected error {error}. {ends}."
    drawing = Markup(draw_calibration(facts["calibration"], alternative_text=alternative)) if with_drawing else ""
    return {
        "error": error,
        "calibration": drawing,
        "labels": details.label_names(facts),
        "matrix": details.confusion_rows(facts),
        "confusions": details.confusion_lines(facts),
        "classes": details.class_rows(facts),
        "classes_left_out": _left_out(len(facts["classes"]) - details.MAX_CLASSES, "more label"),
        "mistakes": details.mistake_rows(facts, pictures.get("mistakes", ())),
        "pictured": bool(pictures.get("mistakes")),
    }


def _records_part(report: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the records hold, as the first run that says so saw them: runs of one report share their records."""
    run = next((run for run in runs if run["evaluation"]), None)
    if run is None:
        return None
    facts = run["evaluation"]
    counts = {split: labels for split, labels in facts["label_counts"].items() if labels}
    words = [
        f"{plain(split)}: {', '.join(f'{plain(label)} {number(count)}' for label, count in labels.items())}"
        for split, labels in counts.items()
    ]
    drawable = 1 <= len(counts) <= 3 and all(len(labels) <= _MAX_DRAWN_LABELS for labels in counts.values())
    alternative = f"Examples of each label. {'; '.join(words)}."
    return {
        "histogram": Markup(draw_labels(counts, alternative_text=alternative)) if drawable else "",
        "counts": details.count_rows(counts),
        "splits": [plain(split) for split in counts],
        "examples": details.example_rows(facts, _pictures_of(report, run).get("examples", ())),
    }


def _pictures_of(report: Mapping[str, Any], run: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    places = (place for place in report["pictures"] if report["runs"][place] is run)
    return next((report["pictures"][place] for place in places), {})


def _history_part(report: Mapping[str, Any]) -> dict[str, Any] | None:
    groups = [group for group in report["history"] if len(group["points"]) > 1][:MAX_LINES]
    if not groups:
        return None
    names = [details.group_name(group) for group in groups]
    ends = "; ".join(
        f"{name}: from {percent(group['points'][0]['val_accuracy'])} to {percent(group['points'][-1]['val_accuracy'])}"
        for name, group in zip(names, groups, strict=True)
    )
    alternative = f"Test accuracy and images per second of every run reported here, by date. {ends}."
    return {
        "drawing": Markup(draw_history(groups, alternative_text=alternative)),
        "groups": [(name, number(len(group["points"]))) for name, group in zip(names, groups, strict=True)],
        "left_out": _left_out(len(report["history"]) - len(groups), "more group"),
        "changes": details.change_rows(report["changes"]),
    }


def _batch_part(table: Mapping[str, Any]) -> dict[str, Any]:
    name, lines = rows.table_name(table), rows.batch_rows(table)
    ends = "; ".join(
        f"{line}: {', '.join(f'batch {batch}: {epoch} s, {step} ms' for batch, epoch, step, _ in points)}"
        for line, points in lines[:MAX_LINES]
    )
    alternative = f"Epoch time and step time by global batch, {name}. {ends}."
    if not rows.has_times(table):
        return {"name": name, "note": rows.NO_TIMES, "lines": [], "drawn": [], "drawing": ""}
    return {
        "name": name,
        "note": "",
        "lines": lines,
        "drawn": lines[:MAX_LINES],
        "drawing": Markup(draw_batch_sizes(table["lines"][:MAX_LINES], alternative_text=alternative)),
    }


def _curves_part(report: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [wording.run_name(run, report["current"]) for run in drawn]
    finals = [wording.final_figures(run) for run in drawn]
    ends = "; ".join(f"{name}: {final}" for name, final in [*zip(names, finals, strict=True)][:MAX_LINES])
    alternative = f"Accuracy and loss by epoch, training and test. At the end, {ends}."
    return {
        "drawn": [{"name": name, "final": final} for name, final in zip(names, finals, strict=True)],
        "drawn_first": min(len(drawn), MAX_LINES),
        "drawn_note": wording.drawn_note(report, min(len(drawn), MAX_LINES)),
        "curves": Markup(draw_curves(drawn, alternative_text=alternative)) if _have_curves(drawn) else "",
    }


def _drawn(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The runs that can be drawn, those asked for first, then the newest; the first few are drawn at once."""
    finished = [run for run in report["runs"] if run["status"] == FINISHED]
    return sorted(finished, key=lambda run: run["fingerprint"] not in report["current"])[:_MAX_DRAWN]


def _have_curves(drawn: Sequence[Mapping[str, Any]]) -> bool:
    """One epoch is a point, not a curve."""
    return any(len(run["curves"]) > 1 for run in drawn)


def _left_out(count: int, noun: str) -> str:
    return f"{plural(count, noun)} in report.json." if count > 0 else ""


def _series(scenario: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places among the drawn runs of those that a row of the scoreboard stands for."""
    mine = set(zip(scenario["fingerprints"], scenario["hostnames"], strict=True))
    return [place for place, run in enumerate(drawn) if (run["fingerprint"], run["hostname"]) in mine]
