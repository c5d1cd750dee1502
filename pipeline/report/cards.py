"""Cards of the model and the records, as Markdown with the front matter of the Hugging Face Hub."""

from bisect import bisect

from pipeline.artifacts import layout
from pipeline.problems.results import results_of
from pipeline.report import formats
from pipeline.report.data.reading import call_hook
from pipeline.report.formats import dataset_name, plain
from pipeline.report.report import Report
from pipeline.report.templating import render
from pipeline.runs.record import FINISHED

# Size categories of the Hugging Face Hub, in factors of ten from a thousand examples.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")


def cards(report: Report) -> dict[str, str]:
    """Return the cards "model" and "dataset" of the first requested run that finished."""
    run = next((run for run in report.requested() if run.status == FINISHED), None)
    # Always written, to replace the card of an earlier report.
    texts = dict.fromkeys(("model", "dataset"), "No requested run has the data for this card.\n")
    if not run:
        return texts
    values = {"counts": [], "labels": [], "rows": [], "confusions": []} | (call_hook(run.problem, "card", run) or {})
    records = [plain(artifact.artifact) for artifact in report.lineage if artifact.stage == "Records"]
    size = bisect([10**power for power in range(3, 8)], sum(count for _, count in values["counts"]))
    problem = results_of(run.problem)
    # Not yet escaped.
    values |= {
        "run": run,
        "fmt": formats,
        "problem": problem,
        "placeholder_for": dataset_name(run.requested_dataset) if run.is_placeholder else "",
        "size": _SIZES[size],
        "input_shape": " × ".join(map(formats.number, run.input_shape or ())),
        "records": f"{layout.RECORDS}/{records[0]}" if records else "",
    }
    suffix = f"-{problem.card_templates}" if problem.card_templates else ""
    for name in ("model", "dataset") if run.evaluation else ("model",):
        texts[name] = render(f"{name}-card{suffix}.md.j2", **values)
    return texts
