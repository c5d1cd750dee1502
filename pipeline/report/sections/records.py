"""Records of the requested runs, with labels, examples, cost and the artifacts they depend on."""

from collections.abc import Iterator

from pipeline.errors import plural
from pipeline.report.blocks import Block, Box, Gallery, Picture, Section, Table, numbers, titled, words
from pipeline.report.formats import dataset_name, number, percent, plain
from pipeline.report.report import Report
from pipeline.report.sections.images import ImageEvaluation, label_names

_MAX_LABELS = 100


def records(report: Report) -> Iterator[Section]:
    """Yield labels and examples from the first run with an image evaluation, and the cost of each image encoding."""
    run = next((run for run in report.requested() if isinstance(run.evaluation, ImageEvaluation)), None)
    blocks: list[Block] = []
    if run:
        names, pictures = label_names(run.evaluation), report.pictures_of(run).get("examples", ())
        labels = [names[example.label] for example in run.evaluation.examples]
        examples = [Picture(png, f"Example of {label}", label) for label, png in zip(labels, pictures, strict=False)]
        blocks = [_labels(run.evaluation), Gallery(examples)]
    yield Section("records", "Records", [*blocks, *titled("Cost of the records", cost_table(report))])


def _labels(evaluation: ImageEvaluation) -> Table:
    counts = {split: labels for split, labels in evaluation.label_counts.items() if labels}
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:_MAX_LABELS]
    rows = [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]
    columns = [*words("label"), *numbers(*map(plain, counts))]
    return Table(columns, rows, label="Examples of each label", style="classes")


def cost_table(report: Report) -> Table:
    """Return size and speed of each encoding of the images."""
    rows = []
    for encoding in report.encodings:
        run, stored, size = encoding.run, encoding.run.records, "original size"
        if stored.image_size:
            size = f"{number(stored.image_size)} px, {plain(stored.resize)}"
        augmented = f", augmented by {plain(run.augment)}" if run.augment else ""
        name = (
            f"{dataset_name(run.dataset)}, {plain(stored.encoding)}, {size}, "
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
    titles = ("MB on disk", "bytes per example", "stream alone, examples/s", "share of step waiting")
    label = "Cost of the records, on disk and in the input stream"
    return Table([*words("records"), *numbers(*titles)], rows, label=label, style="classes")


def lineage(report: Report) -> Iterator[Section]:
    """Yield the artifacts that the requested runs depend on. Their manifests contain settings and packages."""
    rows = []
    for artifact in (artifact for stage in report.lineage for artifact in stage.artifacts):
        seconds = artifact.seconds if isinstance(artifact.seconds, int | float) else None
        created = "not under this storage root" if artifact.settings is None else plain(artifact.made_at)
        rows.append((artifact.stage, plain(artifact.artifact), number(seconds, 1, " s"), created))
    columns = [*words("stage", "artifact"), *numbers("duration"), *words("created")]
    table = Table(columns, rows, label="Lineage of the requested runs", style="classes")
    summary = f"{plural(len(rows), 'artifact')} that the requested runs depend on"
    yield Section("lineage", "Provenance", [Box("fold", [table], summary=summary)])
