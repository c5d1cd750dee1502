"""Skipped: the list, beside the shards, of the source's files that are no examples (the shards' aid)."""

import csv
from pathlib import Path

from pipeline.sources.listing import read_listing

SKIPPED_NAME = "skipped.csv"


def write_skipped(folder: Path, listing: str) -> None:
    """Leave path, reason and detail of each file that is left out, in the order of the paths, where there are any."""
    skipped = read_listing(listing).skipped
    if not skipped:
        return
    # A name of a file may be no text in UTF-8.
    with (folder / SKIPPED_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "reason", "detail"))
        rows.writerows((one.path, one.reason, one.detail) for one in skipped)
