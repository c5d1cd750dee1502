"""Page: the report's data to what its templates place; all but the drawings is still to be escaped."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pipeline.problems.units import units_of_run
from pipeline.report.drawings.bars import LABEL_LETTERS, draw_calibration, draw_labels
from pipeline.report.drawings.curves import draw_batch_sizes, draw_curves, draw_history
from pipeline.report.drawings.drawing import MARKERS, MAX_LINES
from pipeline.report.drawings.positions import draw_positions
from pipeline.report.facts.batch_sizes import has_times, shown_tables
from pipeline.report.facts.scoreboard import current_runs
from pipeline.report.facts.series import drawn_runs, have_curves, spread
from pipeline.report.wording import (
    alternatives,
    batches,
    changes,
    encodings,
    evaluation,
    experiments,
    figures,
    receipt,
    runs,
    text,
    times,
)
from pipeline.report.wording.definitions import definitions
from pipeline.report.wording.formats import number, percent, plain, plural
from pipeline.report.wording.lineage import lineage_rows
from pipeline.report.wording.verdict import verdict
from pipeline.report.wording.warnings import report_warnings
from pipeline.runs.record import is_stand_in

# Beyond these a page would be longer than anyone reads; report.json holds them all.
_MAX_RUN_PARTS = 24
# Drawings of each run beyond these would make up most of the page; their figures are there as text.
_MAX_RUN_DRAWINGS = 8
_MAX_EVIDENCE = 100
_MAX_DRAWN_LABELS = 40
_MAX_POSITIONS = 500


def page_facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Everything the templates place, by the names they use."""
    requested, drawn = current_runs(report), drawn_runs(report)
    parts = [
        {
            **_run_part(run, _pictures_of(report, run), with_drawings=place < _MAX_RUN_DRAWINGS),
            "exports": figures.export_rows(report["exports"].get(run["fingerprint"])),
        }
        for place, run in enumerate(requested[:_MAX_RUN_PARTS])
    ]
    return {
        "verdict": verdict(report),
        "changes": changes.change_sentences(report),
        "warnings": report_warnings(report),
        "alarm": any(is_stand_in(run) for run in requested) or bool((report["gate"] or {}).get("failures")),
        "definitions": definitions(report["runs"]),
        "overview_headings": experiments.OVERVIEW_HEADINGS,
        "overview": experiments.overview_rows(report),
        "scoreboards": experiments.sections(report, drawn),
        "batch_tables": [_batch_part(table) for table in shown_tables(report)],
        **_curves_part(report, drawn),
        "runs": parts,
        "runs_left_out": _left_out(len(requested) - _MAX_RUN_PARTS, "more run"),
        "records": _records_part(report, requested),
        "encoding_headings": encodings.ENCODING_HEADINGS,
        "encodings": encodings.encoding_rows(report["encodings"]),
        "history": _history_part(report),
        "lineage": lineage_rows(report["lineage"]),
        "epoch_headings": figures.EPOCH_HEADINGS,
        "export_headings": figures.EXPORT_HEADINGS,
        "markers": [marker for _, marker in MARKERS],
    }


def _run_part(run: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], *, with_drawings: bool) -> dict[str, Any]:
    shown, evidence = spread(run["curves"]), receipt.evidence(run)
    return {
        "name": runs.run_name(run, []),
        "tiles": figures.tiles(run),
        "receipt": receipt.receipt(run),
        "circumstances": figures.circumstances(run),
        "time_verdict": times.time_verdict(run),
        "times": times.time_rows(run),
        **_seconds_part(run),
        "evidence": evidence[:_MAX_EVIDENCE],
        "evidence_left_out": _left_out(len(evidence) - _MAX_EVIDENCE, "more line"),
        "epochs": figures.epoch_rows(shown),
        "epochs_left_out": _left_out(len(run["curves"]) - len(shown), "more epoch"),
        "evaluation": _evaluated(run, pictures, with_drawing=with_drawings),
    }


def _seconds_part(run: Mapping[str, Any]) -> dict[str, Any]:
    parts = [(what, max(0.0, seconds)) for what, seconds in times.seconds_by_part(run)]
    total = sum(seconds for _, seconds in parts)
    if not (math.isfinite(total) and total):
        return {"seconds_shares": [], "seconds_words": "", "seconds_legend": []}
    legend = [f"{what}: {number(seconds, 1)} s" for what, seconds in parts]
    return {
        "seconds_shares": [f"{100 * seconds / total:.2f}" for _, seconds in parts],
        "seconds_words": alternatives.of_seconds(run, legend),
        "seconds_legend": legend,
    }


def _evaluated(
    run: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], *, with_drawing: bool
) -> dict[str, Any] | None:
    if not run["evaluation"]:
        return None
    part = _text_part if text.is_text(run["evaluation"]) else _evaluation_part
    return part(run, pictures, with_drawing=with_drawing)


def _text_part(run: Mapping[str, Any], pictures: Mapping, *, with_drawing: bool) -> dict[str, Any]:
    facts = run["evaluation"]
    alternative = alternatives.of_positions(run)
    # A sequence of one token has one place.
    drawn = with_drawing and len(facts["position_loss"]) > 1
    losses = spread([*enumerate(facts["position_loss"], start=1)], _MAX_POSITIONS)
    return {
        "token": units_of_run(facts).one,
        "text_rows": text.text_rows(facts),
        "position_rows": text.position_rows(facts),
        "positions": Markup(draw_positions(losses, alternative_text=alternative)) if drawn else "",
        "passages": text.passage_rows(facts),
        "written": text.written_rows(facts),
    }


def _evaluation_part(
    run: Mapping[str, Any], pictures: Mapping[str, Sequence[str]], *, with_drawing: bool
) -> dict[str, Any]:
    facts = run["evaluation"]
    error = percent(facts["expected_calibration_error"])
    alternative = alternatives.of_calibration(run)
    drawing = Markup(draw_calibration(facts["calibration"], alternative_text=alternative)) if with_drawing else ""
    return {
        "text_rows": (),
        "error": error,
        "calibration": drawing,
        "labels": evaluation.label_names(facts),
        "matrix": evaluation.confusion_rows(facts),
        "confusions": evaluation.confusion_lines(facts),
        "classes": evaluation.class_rows(facts),
        "classes_left_out": _left_out(len(facts["classes"]) - evaluation.MAX_CLASSES, "more label"),
        "mistakes_heading": evaluation.mistakes_heading(facts),
        "right": evaluation.right_rows(facts, pictures.get("examples", ())),
        "mistakes": evaluation.mistake_rows(facts, pictures.get("mistakes", ())),
        "augmented": evaluation.augmented_rows(facts, pictures.get("augmented", ())),
        "augmentation": plain(run["augment"], 120),
        "pictured": bool(pictures.get("mistakes")),
    }


def _records_part(report: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What the records hold, as the first run that says so saw them: runs of one report share their records."""
    run = next((run for run in runs if run["evaluation"] and not text.is_text(run["evaluation"])), None)
    if run is None:
        return None
    facts = run["evaluation"]
    counts = {split: labels for split, labels in facts["label_counts"].items() if labels}
    drawable = 1 <= len(counts) <= 3 and all(len(labels) <= _MAX_DRAWN_LABELS for labels in counts.values())
    alternative = alternatives.of_labels(counts)
    bars = [
        (plain(split, LABEL_LETTERS), [(plain(label, LABEL_LETTERS), count) for label, count in labels.items()])
        for split, labels in counts.items()
    ]
    return {
        "histogram": Markup(draw_labels(bars, alternative_text=alternative)) if drawable else "",
        "counts": evaluation.count_rows(counts),
        "splits": [plain(split) for split in counts],
        "examples": evaluation.example_rows(facts, _pictures_of(report, run).get("examples", ())),
    }


def _pictures_of(report: Mapping[str, Any], run: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    places = (place for place in report["pictures"] if report["runs"][place] is run)
    return next((report["pictures"][place] for place in places), {})


def _history_part(report: Mapping[str, Any]) -> dict[str, Any] | None:
    groups = [group for group in report["history"] if len(group["points"]) > 1][:MAX_LINES]
    if not groups:
        return None
    names = [changes.group_name(group) for group in groups]
    alternative = alternatives.of_history(groups)
    return {
        "drawing": Markup(draw_history(groups, alternative_text=alternative)),
        "groups": [(name, number(len(group["points"]))) for name, group in zip(names, groups, strict=True)],
        "left_out": _left_out(len(report["history"]) - len(groups), "more group"),
        "changes": changes.change_rows(report["changes"]),
    }


def _batch_part(table: Mapping[str, Any]) -> dict[str, Any]:
    name, lines = batches.table_name(table), batches.batch_rows(table)
    alternative = alternatives.of_batches(name, lines[:MAX_LINES])
    if not has_times(table):
        return {"name": name, "headings": (), "note": batches.NO_TIMES, "lines": [], "drawn": [], "drawing": ""}
    return {
        "name": name,
        "headings": batches.batch_headings(table),
        "note": "",
        "lines": [*lines, *batches.published_batch_rows(table)],
        "measured": len(lines),
        "drawn": lines[:MAX_LINES],
        "drawing": Markup(draw_batch_sizes(table["lines"][:MAX_LINES], alternative_text=alternative)),
    }


def _curves_part(report: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [runs.run_name(run, report["current"]) for run in drawn]
    finals = [runs.final_figures(run) for run in drawn]
    ends = [*zip(names, finals, strict=True)]
    alternative = alternatives.of_curves(ends[:MAX_LINES])
    return {
        "drawn": [{"name": name, "final": final} for name, final in ends],
        "drawn_first": min(len(drawn), MAX_LINES),
        "drawn_note": runs.drawn_note(report, min(len(drawn), MAX_LINES)),
        "curves": Markup(draw_curves(drawn, alternative_text=alternative)) if have_curves(drawn) else "",
    }


def _left_out(count: int, noun: str) -> str:
    return f"{plural(count, noun)} in report.json." if count > 0 else ""
