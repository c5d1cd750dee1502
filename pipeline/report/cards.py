"""Cards of the model and of the records, as Markdown with the front matter of the Hugging Face Hub."""

from bisect import bisect
from collections.abc import Mapping
from typing import Any

from pipeline.artefacts import layout
from pipeline.problems.units import IMAGE_CLASSIFICATION, NEXT_TOKEN, units_of_run
from pipeline.report import formats
from pipeline.report.formats import Run, dataset_name, plain
from pipeline.report.report import Report
from pipeline.report.sections.evaluation import class_rows, confusion_rows, is_text, text_rows
from pipeline.report.templating import render
from pipeline.runs.record import FINISHED, is_stand_in

# The Hub's names of sizes, from a thousand examples by factors of ten.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")
_MOST_CONFUSIONS = 5
# The Hub's names of the problems.
_TASKS = {IMAGE_CLASSIFICATION: "image-classification", NEXT_TOKEN: "text-generation"}


def cards(report: Report) -> dict[str, str]:
    """The cards "model" and "dataset" of the first requested run that finished."""
    run = next((run for run in report.requested() if run["status"] == FINISHED), None)
    # Always written: a card of an earlier report must not stay.
    found = dict.fromkeys(("model", "dataset"), "No requested run has what this card describes.\n")
    if run:
        for name in ("model", "dataset") if run["evaluation"] else ("model",):
            found[name] = render(f"{name}-card.md.j2", **_context(run, run["evaluation"] or {}, report))
    return found


def _context(run: Run, facts: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The values of the templates. None of them is escaped."""
    nodes = [node for stage in report.lineage for node in stage["artefacts"] if node["stage"] == "Records"]
    has_classes, counts = "classes" in facts, _counts(facts)
    size = bisect([10**power for power in range(3, 8)], sum(count for _, count, _ in counts))
    return {
        "run": run,
        "facts": facts,
        "stored": run["records"] or {},
        "fmt": formats,
        "units": units_of_run(run),
        "task": _TASKS.get(run["problem"], "other"),
        "is_text": run["problem"] == NEXT_TOKEN,
        "stand_in_for": dataset_name(run["requested_dataset"]) if is_stand_in(run) else "",
        "counts": counts,
        "size": _SIZES[size],
        "input_shape": " × ".join(map(formats.number, run["input_shape"] or ())),
        "labels": [plain(name) for name in facts.get("label_names", ())],
        "text_rows": text_rows(facts) if is_text(facts) else [],
        "classes": class_rows(facts) if has_classes else [],
        "confusions": confusion_rows(facts, _MOST_CONFUSIONS) if has_classes else [],
        "records": f"{layout.RECORDS}/{plain(nodes[0]['artefact'])}" if nodes else "",
    }


def _counts(facts: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(split, examples, predictions). The examples of a text are sequences."""
    if is_text(facts):
        length = facts["sequence_length"]
        return [(plain(split), count // length, count) for split, count in facts["characters"].items() if length]
    counts = {plain(split): sum(labels.values()) for split, labels in facts.get("label_counts", {}).items()}
    return [(split, count, count) for split, count in counts.items()]
