"""The index of a source of files in its artifact, with the examples, the skipped files, and a check for changes."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import message
from pipeline.records.keys import index_key
from pipeline.sources.files import Stamp, cached_until_replaced, digests, quoted

INDEX_NAME = "examples.json"
KEY_BYTES = 16

#: Position of an example in another file, for the function that reads it. Empty if the example is a file itself.
Address = Sequence[str | int]


class Example(NamedTuple):
    """An example before it is examined. Files that are missing, and examples inside other files, have no stamp.

    ``label`` is the name of a label, or a value for each label or target. ``split`` is a name such as "val".
    """

    path: str
    label: str | Sequence[float] = ""
    stamp: Stamp = ()
    address: Address = ()
    group: str = ""
    split: str = "train"


@dataclass(frozen=True, kw_only=True)
class Examined:
    """An example that can be used. ``digest`` is hex sha256, and ``plain`` is that of ``IndexedSplit``."""

    digest: str
    num_bytes: int
    plain: bool = True


@dataclass(frozen=True)
class IndexedSplit:
    """The columns of a split, each (examples,).

    ``digests`` are hex sha256. ``plain`` is whether TensorFlow decodes an image file correctly. ``addresses`` is empty
    if each example is a file, and ``groups`` if there are none.
    """

    paths: Sequence[str]
    stamps: Sequence[Stamp]
    digests: Sequence[str]
    labels: Sequence[int | Sequence[float]] = ()
    plain: Sequence[bool] = ()
    addresses: Sequence[Address] = ()
    groups: Sequence[str] = ()

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the examples. They have the same length and do not depend on the path of the folder."""
        return [path_key(path) for path in self.paths]


@dataclass(frozen=True)
class Skipped:
    """A skipped file, with one of a few reasons. Digest and stamp are empty if it could not be read."""

    path: str
    stamp: Stamp
    digest: str
    reason: str
    detail: str


@dataclass(frozen=True)
class FileIndex:
    """The files of a source. ``description_files`` maps files such as a table to their stamp and hex sha256."""

    splits: Mapping[str, IndexedSplit]
    skipped: Sequence[Skipped]
    description_files: Mapping[str, tuple[Stamp, str]]

    def digest(self) -> str:
        """Hex sha256 of paths, labels, contents and groups of the examples, and of the skipped paths with reasons."""
        content = {
            split: [one.paths, one.labels, one.digests, *([one.groups] if one.groups else [])]
            for split, one in self.splits.items()
        }
        left_out = [[one.path, one.reason] for one in self.skipped]
        return hashlib.sha256(json.dumps([content, left_out], sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Write the index to the artifact's folder."""
        (folder / INDEX_NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @cached_property
    def files(self) -> Mapping[str, tuple[Stamp, str]]:
        """Path → stamp and digest of each file. A file that was missing has no stamp."""
        rows = [zip(one.paths, one.stamps, one.digests, strict=True) for one in self.splits.values()]
        rows.append((one.path, one.stamp, one.digest) for one in self.skipped)
        return {path: (stamp, digest) for part in rows for path, stamp, digest in part} | self.description_files

    def changes(self, folder: Path, stamps_by_path: Mapping[str, Stamp], memory: Path) -> Iterator[str]:
        """Describe each file of ``folder`` that has changed.

        ``stamps_by_path`` contains the stamps of all existing files, and ``memory`` the digests of files read before.
        """
        recorded = {path: file for path, file in self.files.items() if file[0]}
        known = stamps_by_path.keys() & recorded
        restamped = [path for path in stamps_by_path if path in known and [*stamps_by_path[path]] != recorded[path][0]]
        same_size = [path for path in restamped if stamps_by_path[path][0] == recorded[path][0][0]]
        current_digests = digests(folder, same_size, memory)
        yield from (change(path, "removed") for path in recorded if path not in stamps_by_path)
        yield from (change(path, "changed") for path in restamped if current_digests.get(path) != recorded[path][1])
        yield from (change(path, "added") for path in stamps_by_path if path not in recorded)


@message
def change(path: str, action: str) -> str:
    """Describe a file that is "added", "changed" or "removed"."""
    return f"{quoted(path)} {'has' if action == 'changed' else 'was'} {action}"


def path_key(path: str) -> str:
    """Key of a file, which is a digest of its path below the source's folder."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


# An index takes a few hundred bytes per file.
@cached_until_replaced
def read_index(path: str) -> FileIndex:
    """Read the index at a path."""
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    splits = {split: IndexedSplit(**columns) for split, columns in stored["splits"].items()}
    return FileIndex(splits, [Skipped(**one) for one in stored["skipped"]], stored["description_files"])


def example_keys(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """The keys of a split in the source's order, from the index if there is one."""
    return read_index(listing).splits[split].keys if listing else IndexKeys(split, num_examples)


def example_names(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """Names of the examples for people: paths below the source's folder, else the keys."""
    return read_index(listing).splits[split].paths if listing else IndexKeys(split, num_examples)


@dataclass(frozen=True)
class IndexKeys(Sequence[str]):
    """Keys of examples without names. They are computed on access, because there may be a billion."""

    split: str
    num_examples: int

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, which: int | slice) -> str | list[str]:
        if isinstance(which, slice):
            return [self[at] for at in range(self.num_examples)[which]]
        return index_key(self.split, range(self.num_examples)[which])
