"""Data of the runs, with splits, labels, examples, warnings and size, the artifacts they depend on, and a glossary."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import plural
from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Facts, Section, Table, Text, numbers, words
from pipeline.report.data.reading import Run, call_hook
from pipeline.report.report import Report
from pipeline.report.sections.summary import data_warnings

_GLOSSARY = Path(__file__).parents[1] / "templates" / "glossary.txt"
_CONTENT = {
    "yes": "The content equals the original.",
    "no": "The content was not verified.",
    "no reference": f"{fmt.NO_REFERENCE.capitalize()}.",
}
_METHODS = {
    "key": ("A hash of each key, independent of the seed,", "about"),
    "label": ("A hash of each key, within each label and independent of the seed,", "about"),
    "group": ("A hash of each group, independent of the seed,", "the groups of about"),
    "position": ("The position in the source", "the last"),
}


def records(report: Report) -> Iterator[Section]:
    """Yield the data of the best or the first requested run with an evaluation."""
    run = next((run for run in (report.best(), *report.requested()) if run and run.evaluation), None)
    blocks = [*_summary(run), *(call_hook(run.problem, "data_blocks", report, run) or ())] if run else []
    yield Section("records", "Data", blocks)


def _summary(run: Run) -> Iterator[Block]:
    """Yield number, origin, splits, warnings and storage of the examples."""
    values = call_hook(run.problem, "card", run) or {}
    splits = ", ".join(f"{fmt.number(count)} {fmt.plain(split)}" for split, count in values.get("counts", ()))
    counts = f" with {' and '.join(splits.rsplit(', ', 1))} {run.units.examples}" if splits else ""
    # Numbers are no labels.
    has_labels = values.get("labels") and results_of(run.problem).has_accuracy
    labels = f" of {plural(len(values['labels']), 'label')}" if has_labels else ""
    data = f"The run used {fmt.data_phrase(run)}{counts}{labels}."
    yield Text(" ".join([data, _CONTENT[fmt.data_verified(run)], *_division(run)]))
    yield from (Text(explanation, lead=headline) for headline, explanation in data_warnings(run))
    if stored := run.records:
        smallest, median, largest = map(fmt.number, (stored.smallest_side, stored.median_side, stored.largest_side))
        sides = f"from shorter sides of {smallest} to {largest} pixels, median {median}" if stored.median_side else ""
        form = fmt.joined(fmt.plain(stored.resize), sides) if stored.image_size else "original size"
        reduced = f"much larger ones reduced to a shorter side of {fmt.number(stored.store_side)} pixels"
        kept = f"{reduced}, quality {stored.store_quality}" if stored.store_side else ""
        images = fmt.joined(fmt.inputs(run), fmt.plain(stored.encoding), form, kept)
        mean = fmt.number(stored.total_bytes / max(1, stored.num_examples))
        size = f"{fmt.number(stored.total_bytes, 1, ' MB', 1e-6)}, {mean} bytes per image"
        yield Facts([("Stored images", images), ("Size on disk", size)])


def _division(run: Run) -> Iterator[str]:
    """Yield a sentence about the origin of the splits, none for a record of an earlier version."""
    if (division := run.division) is None:
        return
    how, part = _METHODS[division.by]
    whole, moved = "the train split of the source", []
    for split in ("test", "validation"):
        if share := getattr(division, f"{split}_share"):
            moved.append(f"{part} {fmt.as_published(100 * share)}% of {whole} to the {split} split")
            whole = "the rest"
    yield f"{how} assigned {' and '.join(moved)}." if moved else "The splits are those of the source."


def glossary(report: Report) -> Iterator[Section]:
    """Yield the terms of the report with their meanings."""
    lines = _GLOSSARY.read_text(encoding="utf-8").splitlines()
    terms = Facts([tuple(line.split(": ", 1)) for line in lines], "definitions")
    yield Section("definitions", "Glossary", [Box("fold", [terms], summary="Terms of this page")])


def lineage(report: Report) -> Iterator[Section]:
    """Yield the artifacts that the requested runs depend on. Their manifests contain settings and packages."""
    rows = []
    for artifact in report.lineage:
        seconds = artifact.seconds if isinstance(artifact.seconds, int | float) else None
        created = "not under this storage root" if artifact.made_at is None else fmt.plain(artifact.made_at)
        rows.append((artifact.stage, fmt.plain(artifact.artifact), fmt.number(seconds, 1, " s"), created))
    columns = [*words("stage", "artifact"), *numbers("duration"), *words("created")]
    table = Table(columns, rows, label="Lineage of the requested runs", style="classes")
    summary = f"{plural(len(rows), 'artifact')} that the requested runs depend on"
    yield Section("lineage", "Provenance", [Box("fold", [table], summary=summary)])
