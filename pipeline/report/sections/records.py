"""The records of the requested runs: labels, examples, cost, and the artifacts that they come from."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.report import drawings
from pipeline.report.blocks import Block, Box, Chart, Column, Gallery, Picture, Section, Table, Text, pairs, plain_table
from pipeline.report.formats import NO_FIGURE, Run, dataset_name, number, percent, plain
from pipeline.report.report import Report
from pipeline.report.sections.evaluation import is_text, label_names
from pipeline.report.sections.runs import leaf, leaves

_MAX_DRAWN_LABELS = 40
_MAX_LABELS = 100


def records(report: Report) -> Iterator[Section]:
    """Labels and examples by the first run with an evaluation of images, and the cost of each image encoding."""
    run = next((run for run in report.requested() if run["evaluation"] and not is_text(run["evaluation"])), None)
    blocks: list[Block] = [_labels(run["evaluation"])] if run else []
    pictures = report.pictures_of(run).get("examples", ()) if run else ()
    if pictures:
        names = label_names(run["evaluation"])
        labels = [names[one["label"]] for one in run["evaluation"]["examples"]]
        blocks.append(
            Gallery(
                [Picture(png, f"Example of {label}", title=label) for label, png in zip(labels, pictures, strict=False)]
            )
        )
    if report.encodings:
        blocks += [Text("What the records cost", kind="heading"), cost_table(report)]
    yield Section("records", "Records", blocks)


def _labels(facts: Mapping[str, Any]) -> Block:
    counts = {split: labels for split, labels in facts["label_counts"].items() if labels}
    if 1 <= len(counts) <= 3 and all(len(labels) <= _MAX_DRAWN_LABELS for labels in counts.values()):
        letters = drawings.LABEL_LETTERS
        bars = [
            (plain(split, letters), [(plain(label, letters), count) for label, count in labels.items()])
            for split, labels in counts.items()
        ]
        data = [
            f"{plain(split)}: {', '.join(f'{plain(label)} {number(count)}' for label, count in labels.items())}"
            for split, labels in counts.items()
        ]
        return Chart("Examples of each label", lambda text: drawings.draw_labels(bars, alternative_text=text), data)
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:_MAX_LABELS]
    rows = [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]
    return plain_table(["label", *map(plain, counts)], rows, "Examples of each label", "classes")


def cost_table(report: Report) -> Table:
    """Size and speed of each encoding of the images."""
    columns = (
        Column("records", _encoding),
        Column("MB on disk", lambda row: number(row["records"]["total_bytes"] / 1e6, 1), True),
        Column("bytes an example", _bytes_per_example, True),
        Column("stream alone, examples/s", lambda row: number(row["stream_examples_per_second"]), True),
        Column("of a step waiting", lambda row: percent(row["input_wait_share"], 0), True),
    )
    label = "What the records cost, on disk and in the input stream"
    return Table(columns, report.encodings, label=label, style="classes")


def _encoding(row: Run) -> str:
    stored = row["records"]
    size = f"{number(stored['image_size'])} px, {plain(stored['resize'])}" if stored["image_size"] else "as they come"
    augmented = f", augmented by {plain(row['augment'])}" if row["augment"] else ""
    return (
        f"{dataset_name(row['dataset'])}, {plain(stored['encoding'])}, {size}; "
        f"read from {'memory' if row['input_in_memory'] else 'disk'}{augmented}, for {plain(row['model'])} on "
        f"{plain(row['device_name'] or row['effective_device'])}"
    )


def _bytes_per_example(row: Run) -> str:
    return number(row["records"]["total_bytes"] / max(1, row["records"]["num_examples"]))


def lineage(report: Report) -> Iterator[Section]:
    """The stages of the requested runs with their artifacts."""
    stages = [
        Box("stage", [_artifact(node) for node in stage["artefacts"]], summary=stage["stage"])
        for stage in report.lineage
    ]
    yield Section("lineage", "Lineage", [Box("dag", stages)] if stages else [])


def _artifact(node: Mapping[str, Any]) -> Box:
    facts = [("fingerprint", plain(node["fingerprint"]))]
    if node["settings"] is None:
        facts.append(("more", "not under this storage root"))
    else:
        took = node["seconds"]
        facts.append(("took", f"{number(took, 1)} s" if isinstance(took, int | float) else NO_FIGURE))
        facts.append(("made", plain(node["made_at"])))
        facts += [(plain(" / ".join(path)), leaf(value)) for path, value in leaves(dict(node["settings"]))]
        facts += [(plain(name), leaf(version)) for name, version in node["packages"].items()]
    return Box("fold", [pairs(facts)], summary=plain(node["artefact"]), style="artefact")
