"""Listing: the examples of a source of single files, split by split (the sources' aid); the standard library alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class ListedSplit:
    """One split, column by column, in order: keys, paths below the source's folder, labels from 0."""

    keys: tuple[str, ...]
    paths: tuple[str, ...]
    labels: tuple[int, ...]


@cache
def read_listing(path: str) -> Mapping[str, ListedSplit]:
    """The listing that a source's artefact holds."""
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    return {
        split: ListedSplit(tuple(one["keys"]), tuple(one["paths"]), tuple(one["labels"]))
        for split, one in stored.items()
    }
