"""Listing: the examples of a source of single files, split by split (the sources' aid); the standard library alone.

The source's artefact holds it. It says of each file what it was when it was looked at, so that "has anything changed?"
is answered by a look at names, sizes and times, and by reading the content of those files alone that differ.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pipeline.sources import words

LISTING_NAME = "examples.json"
KEY_BYTES = 16


@dataclass(frozen=True)
class ListedSplit:
    """One split, column by column, in the order of its paths, each (examples,).

    ``paths`` are below the source's folder, ``labels`` count from 0, ``sizes`` are bytes, ``mtimes`` nanoseconds,
    ``digests`` hex sha256 of the files; ``plain`` says which can be decoded as they are.
    """

    paths: Sequence[str]
    labels: Sequence[int]
    sizes: Sequence[int]
    mtimes: Sequence[int]
    digests: Sequence[str]
    plain: Sequence[bool]

    @property
    def keys(self) -> Sequence[str]:
        """The examples' keys: of one length, and the same wherever the folder lies."""
        return [path_key(path) for path in self.paths]


@dataclass(frozen=True)
class Listing:
    """All there is to say of the files of a source.

    ``splits``: split → its examples. ``skipped``: path → bytes, time of change and why it is no example. ``beside``:
    path → hex sha256 of files that say what the examples are, such as a table.
    """

    splits: Mapping[str, ListedSplit]
    skipped: Mapping[str, tuple[int, int, str]]
    beside: Mapping[str, str]

    def digest(self) -> str:
        """Hex sha256 over what the examples are: paths, labels and contents; neither sizes nor times."""
        content = {split: [list(one.paths), list(one.labels), list(one.digests)] for split, one in self.splits.items()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Leave the listing in the artefact's folder."""
        (folder / LISTING_NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    def changes(self, folder: Path, found: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """What has changed since, a few words for each file, as few as are asked for.

        Args:
            folder: where the files lie now.
            found: path below ``folder`` → bytes and time of change in nanoseconds, of each file that is there now.
        """
        for path, digest in self.beside.items():
            if not (folder / path).is_file() or file_digest(folder / path) != digest:
                yield words.differs(path)
        listed = set(self.skipped)
        for path, (size, mtime, _) in self.skipped.items():
            if path in found and found[path] != (size, mtime):
                yield words.differs(path)
        for one in self.splits.values():
            listed.update(one.paths)
            for path, size, mtime, digest in zip(one.paths, one.sizes, one.mtimes, one.digests, strict=True):
                now = found.get(path)
                if now is None:
                    yield words.removed(path)
                elif now != (size, mtime) and (now[0] != size or file_digest(folder / path) != digest):
                    yield words.differs(path)
        yield from (words.added(path) for path in found if path not in listed)


def path_key(path: str) -> str:
    """The key of an example that is a file: the digest of its path below the source's folder."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


@cache
def read_listing(path: str) -> Listing:
    """The listing at a path."""
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    splits = {split: ListedSplit(**columns) for split, columns in stored["splits"].items()}
    return Listing(splits, {name: tuple(one) for name, one in stored["skipped"].items()}, stored["beside"])


def file_digest(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Path below ``folder`` → bytes and time of change in nanoseconds, of each file; hidden ones are left out.

    Links to folders are followed inside ``folder`` alone, and no folder is entered twice.
    """
    found: dict[str, tuple[int, int]] = {}
    top, root, waiting, entered = f"{folder}{os.sep}", os.path.realpath(folder), [str(folder)], set()
    while waiting:
        current = waiting.pop()
        real = os.path.realpath(current)
        if real in entered or not f"{real}{os.sep}".startswith(f"{root}{os.sep}"):
            continue
        entered.add(real)
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    waiting.append(entry.path)
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    # A link to nothing.
                    stat = entry.stat(follow_symlinks=False)
                found[entry.path.removeprefix(top)] = (stat.st_size, stat.st_mtime_ns)
    return found
