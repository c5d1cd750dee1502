"""Cards of the model and of the records, as Markdown with the front matter of the Hugging Face Hub."""

from bisect import bisect
from collections.abc import Mapping
from typing import Any

from pipeline.artifacts import layout
from pipeline.problems.results import results_of
from pipeline.report import formats
from pipeline.report.data.reading import Run, call_hook
from pipeline.report.formats import dataset_name, plain
from pipeline.report.report import Report
from pipeline.report.templating import render
from pipeline.runs.record import FINISHED

# The Hub's names of sizes, from a thousand examples by factors of ten.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")


def cards(report: Report) -> dict[str, str]:
    """The cards "model" and "dataset" of the first requested run that finished."""
    run = next((run for run in report.requested() if run.status == FINISHED), None)
    # Always written: a card of an earlier report must not stay.
    found = dict.fromkeys(("model", "dataset"), "No requested run has what this card describes.\n")
    if run:
        kind = results_of(run.problem).card_templates
        for name in ("model", "dataset") if run.evaluation else ("model",):
            found[name] = render(f"{name}-card{kind and f'-{kind}'}.md.j2", **_context(run, report))
    return found


def _context(run: Run, report: Report) -> dict[str, Any]:
    """The values of the templates. None of them is escaped."""
    nodes = [one for stage in report.lineage for one in stage.artifacts if one.stage == "Records"]
    values: Mapping[str, Any] = call_hook(run.problem, "card", run) or {}
    counts = values.get("counts", [])
    size = bisect([10**power for power in range(3, 8)], sum(count for _, count, _ in counts))
    return {
        "run": run,
        "stored": run.records,
        "fmt": formats,
        "units": run.units,
        "task": results_of(run.problem).hub_task,
        "placeholder_for": dataset_name(run.requested_dataset) if run.is_placeholder else "",
        "size": _SIZES[size],
        "input_shape": " × ".join(map(formats.number, run.input_shape or ())),
        "records": f"{layout.RECORDS}/{plain(nodes[0].artifact)}" if nodes else "",
        "counts": counts,
        "has_predicted": False,
        "labels": [],
        "rows": [],
        "confusions": [],
        **values,
    }
