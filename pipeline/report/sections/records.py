"""The records of the requested runs: labels, examples, cost, and the artifacts that they come from."""

from collections.abc import Iterator

from pipeline.report.blocks import Block, Box, Facts, Gallery, Picture, Section, Table, figures, titled, words
from pipeline.report.data.lineage import Artifact
from pipeline.report.formats import dataset_name, number, percent, plain
from pipeline.report.report import Report
from pipeline.report.sections.images import ImageEvaluation, label_names
from pipeline.report.sections.runs import leaves

_MAX_LABELS = 100


def records(report: Report) -> Iterator[Section]:
    """Labels and examples by the first run with an evaluation of images, and the cost of each image encoding."""
    run = next((run for run in report.requested() if isinstance(run.evaluation, ImageEvaluation)), None)
    blocks: list[Block] = []
    if run:
        names, pictures = label_names(run.evaluation), report.pictures_of(run).get("examples", ())
        labels = [names[one.label] for one in run.evaluation.examples]
        shown = [Picture(png, f"Example of {label}", label) for label, png in zip(labels, pictures, strict=False)]
        blocks = [_labels(run.evaluation), Gallery(shown)]
    yield Section("records", "Records", [*blocks, *titled("What the records cost", cost_table(report))])


def _labels(evaluation: ImageEvaluation) -> Table:
    counts = {split: labels for split, labels in evaluation.label_counts.items() if labels}
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:_MAX_LABELS]
    rows = [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]
    columns = [*words("label"), *figures(*map(plain, counts))]
    return Table(columns, rows, label="Examples of each label", style="classes")


def cost_table(report: Report) -> Table:
    """Size and speed of each encoding of the images."""
    rows = []
    for encoding in report.encodings:
        run, stored, size = encoding.run, encoding.run.records, "as they come"
        if stored.image_size:
            size = f"{number(stored.image_size)} px, {plain(stored.resize)}"
        augmented = f", augmented by {plain(run.augment)}" if run.augment else ""
        name = (
            f"{dataset_name(run.dataset)}, {plain(stored.encoding)}, {size}; "
            f"read from {'memory' if run.input_in_memory else 'disk'}{augmented}, for {plain(run.model)} on "
            f"{plain(run.device_name or run.effective_device)}"
        )
        rows.append(
            (
                name,
                number(stored.total_bytes, 1, scale=1e-6),
                number(stored.total_bytes / max(1, stored.num_examples)),
                number(encoding.stream_examples_per_second),
                percent(encoding.input_wait_share, 0),
            )
        )
    titles = ("MB on disk", "bytes an example", "stream alone, examples/s", "of a step waiting")
    label = "What the records cost, on disk and in the input stream"
    return Table([*words("records"), *figures(*titles)], rows, label=label, style="classes")


def lineage(report: Report) -> Iterator[Section]:
    """The stages of the requested runs with their artifacts."""
    stages = [
        Box("stage", [_box(artifact) for artifact in stage.artefacts], summary=stage.stage) for stage in report.lineage
    ]
    yield Section("lineage", "Lineage", [Box("dag", stages)])


def _box(artifact: Artifact) -> Box:
    facts = [("fingerprint", plain(artifact.fingerprint))]
    if artifact.settings is None:
        facts.append(("more", "not under this storage root"))
    else:
        took = artifact.seconds
        facts.append(("took", number(took if isinstance(took, int | float) else None, 1, " s")))
        facts.append(("made", plain(artifact.made_at)))
        for part in (artifact.settings, artifact.packages):
            facts += [(plain(path), value) for path, value in leaves(dict(part))]
    return Box("fold", [Facts(facts)], summary=plain(artifact.artefact), style="artefact")
