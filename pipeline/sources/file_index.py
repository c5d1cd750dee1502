"""The index of a source of single files: its examples, the skipped files with reasons, and what has changed since.

It is in the source's artifact. The standard library alone.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from pipeline.sources.files import Stamp, change, digests

INDEX_NAME = "examples.json"
KEY_BYTES = 16


@dataclass(frozen=True)
class FoundFiles:
    """Files that a source names, before they are examined."""

    #: Split → path below the source's folder and label of each example.
    examples: Mapping[str, Sequence[tuple[str, str]]]
    #: Path → stamp of the files that exist.
    stamps: Mapping[str, Stamp]
    label_names: tuple[str, ...] = ()
    #: Name of a folder or value that means a split → the split.
    renamed_splits: Mapping[str, str] = field(default_factory=dict)

    def paths(self) -> list[str]:
        """The paths of all splits."""
        return [path for entries in self.examples.values() for path, _ in entries]


@dataclass(frozen=True)
class IndexedSplit:
    """One split, column by column in the order of its paths, each (examples,).

    ``digests`` are hex sha256, and ``plain`` is whether a file can be decoded as it is.
    """

    paths: Sequence[str]
    labels: Sequence[int]
    stamps: Sequence[Stamp]
    digests: Sequence[str]
    plain: Sequence[bool]

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the examples, of one length and independent of the folder's place."""
        return [path_key(path) for path in self.paths]


@dataclass(frozen=True)
class Skipped:
    """A file that is no example: ``reason`` is one of a few. Digest and stamp are empty if it could not be read."""

    path: str
    stamp: Stamp
    digest: str
    reason: str
    detail: str


@dataclass(frozen=True)
class FileIndex:
    """The files of a source."""

    splits: Mapping[str, IndexedSplit]
    skipped: Sequence[Skipped]
    #: Path → hex sha256 of files that describe the examples, such as a table.
    beside: Mapping[str, str]

    def digest(self) -> str:
        """Hex sha256 of paths, labels and contents of the examples, and of the skipped paths with reasons."""
        content = {split: [list(one.paths), list(one.labels), list(one.digests)] for split, one in self.splits.items()}
        left_out = [[one.path, one.reason] for one in self.skipped]
        return hashlib.sha256(json.dumps([content, left_out], sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write the index to the artifact's folder."""
        (folder / INDEX_NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    def changes(self, folder: Path, present: Mapping[str, Stamp], memory: Path) -> Iterator[str]:
        """Describe each file of ``folder`` that has changed since.

        ``present`` has the stamp of each file that exists now, and ``memory`` the digests of files read before.
        """
        indexed = self.stamps
        touched = [path for path, stamp in present.items() if indexed.get(path) and [*stamp] != [*indexed[path]]]
        same_size = [path for path in touched if present[path][0] == indexed[path][0]]
        now = digests(folder, [*self.beside, *same_size], memory)
        for path, digest in self.beside.items():
            if now[path] != digest:
                yield change(path, "changed" if now[path] else "removed")
        before = {path: digest for path, _, digest in self._files()}
        # A file that was missing when it was indexed is still missing.
        yield from (change(path, "removed") for path, stamp in indexed.items() if stamp and path not in present)
        yield from (change(path, "changed") for path in touched if now.get(path) != before[path])
        yield from (change(path, "added") for path in present if not indexed.get(path))

    @cached_property
    def stamps(self) -> Mapping[str, Stamp]:
        """Path → stamp of each indexed file."""
        return {path: stamp for path, stamp, _ in self._files()}

    def _files(self) -> Iterator[tuple[str, Stamp, str]]:
        for one in self.splits.values():
            yield from zip(one.paths, one.stamps, one.digests, strict=True)
        yield from ((one.path, one.stamp, one.digest) for one in self.skipped)


def path_key(path: str) -> str:
    """Key of an example that is a file: a digest of its path below the source's folder."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


def read_index(path: str) -> FileIndex:
    """The index at a path, read once and again if it is replaced."""
    found = os.stat(path)
    return _read_index(path, (found.st_ino, found.st_size, found.st_mtime_ns))


# At most two: an index takes a few hundred bytes per file.
@lru_cache(maxsize=2)
def _read_index(path: str, stamp: tuple[int, int, int]) -> FileIndex:
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    splits = {split: IndexedSplit(**columns) for split, columns in stored["splits"].items()}
    return FileIndex(splits, [Skipped(**one) for one in stored["skipped"]], stored["beside"])
