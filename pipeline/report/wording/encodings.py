"""Encodings: what each way of storing images costs, as rows, and what was left out of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.wording.formats import dataset_name, number, percent, plain, plural

ENCODING_HEADINGS = ("records", "MB on disk", "bytes an example", "stream alone, examples/s", "of a step waiting")


def encoding_rows(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of facts/encodings.py in the order of ENCODING_HEADINGS."""
    return [
        (
            _name(row),
            number(row["records"]["total_bytes"] / 1e6, 1),
            number(row["records"]["total_bytes"] / max(1, row["records"]["num_examples"])),
            number(row["stream_examples_per_second"]),
            percent(row["input_wait_share"], 0),
        )
        for row in rows
    ]


def skipped_sentence(skipped: Mapping[str, int]) -> str:
    """How many files of a source are left out and why; empty where none is."""
    if not skipped:
        return ""
    reasons = "; ".join(f"{plain(reason)}: {number(count)}" for reason, count in skipped.items())
    files = plural(sum(skipped.values()), "file")
    return f"{files} of the source cannot be used: {reasons}. skipped.csv beside the records lists them."


def _name(row: Mapping[str, Any]) -> str:
    records = row["records"]
    size = (
        f"{number(records['image_size'])} px, {plain(records['resize'])}" if records["image_size"] else "as they come"
    )
    augmented = f", augmented by {plain(row['augment'])}" if row["augment"] else ""
    return (
        f"{dataset_name(row['dataset'])}, {plain(records['encoding'])}, {size}; "
        f"read from {'memory' if row['input_in_memory'] else 'disk'}{augmented}, for {plain(row['model'])} on "
        f"{plain(row['device_name'] or row['effective_device'])}"
    )
