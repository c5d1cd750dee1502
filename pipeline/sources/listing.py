"""Listing: the examples of a source of single files, split by split (the sources' aid); the standard library alone.

The source's artefact holds it. It says of each file what it was when it was looked at, so that "has anything changed?"
is answered by a look at names, sizes and times, and by reading the content of those files alone that differ.
"""

import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
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

    @cached_property
    def keys(self) -> Sequence[str]:
        """The examples' keys: of one length, and the same wherever the folder lies."""
        return [path_key(path) for path in self.paths]


@dataclass(frozen=True)
class Skipped:
    """A file that is no example: why, one of a few reasons, and what was found.

    ``digest`` is "" where it could not be read; ``size`` and ``mtime`` are 0 where it was not there.
    """

    path: str
    size: int
    mtime: int
    digest: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Listing:
    """All there is to say of the files of a source.

    ``splits``: split → its examples. ``skipped``: those that are none. ``beside``: path → hex sha256 of files that
    say what the examples are, such as a table.
    """

    splits: Mapping[str, ListedSplit]
    skipped: Sequence[Skipped]
    beside: Mapping[str, str]

    def digest(self) -> str:
        """Hex sha256 over what the examples are, and which are none: paths, labels and contents; no sizes or times."""
        content = {split: [list(one.paths), list(one.labels), list(one.digests)] for split, one in self.splits.items()}
        left_out = [[one.path, one.reason] for one in self.skipped]
        return hashlib.sha256(json.dumps([content, left_out], sort_keys=True).encode()).hexdigest()

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
            now = _digest_now(folder / path)
            if now != digest:
                yield (words.differs if now else words.removed)(path)
        listed = self.stamps
        for path, size, mtime, digest in self._files():
            now = found.get(path)
            if now == listed[path]:
                continue
            # What was listed and never there is still not there.
            if now is None and mtime:
                yield words.removed(path)
            elif now is not None and (now[0] != size or _digest_now(folder / path) != digest):
                yield words.differs(path)
        yield from (words.added(path) for path in found if path not in listed)

    @cached_property
    def stamps(self) -> Mapping[str, tuple[int, int]]:
        """Path → bytes and time of change of each file that was listed."""
        return {path: (size, mtime) for path, size, mtime, _ in self._files()}

    def _files(self) -> Iterator[tuple[str, int, int, str]]:
        for one in self.splits.values():
            yield from zip(one.paths, one.sizes, one.mtimes, one.digests, strict=True)
        yield from ((one.path, one.size, one.mtime, one.digest) for one in self.skipped)


class FolderError(Exception):
    """A folder cannot be looked through: what was ``expected`` of it, and a ``hint``; the caller knows who named it."""

    def __init__(self, expected: str, hint: str) -> None:
        self.expected, self.hint = expected, hint
        super().__init__(f"expected {expected}.{hint}")


def path_key(path: str) -> str:
    """The key of an example that is a file: the digest of its path below the source's folder."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).hexdigest()


def read_listing(path: str) -> Listing:
    """The listing at a path; read once, and again where another has taken its place."""
    found = os.stat(path)
    return _read_listing(path, (found.st_ino, found.st_size, found.st_mtime_ns))


# The one of before is let go: a listing takes a few hundred bytes a file.
@lru_cache(maxsize=2)
def _read_listing(path: str, stamp: tuple[int, int, int]) -> Listing:
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    splits = {split: ListedSplit(**columns) for split, columns in stored["splits"].items()}
    return Listing(splits, [Skipped(**one) for one in stored["skipped"]], stored["beside"])


@contextmanager
def _opened(path: str | Path) -> Iterator[io.FileIO]:
    # What is no file, such as a named pipe, would be waited for without end.
    # Unbuffered: a whole file is read at once, and a buffer takes as long to make as a small file to read.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, words.NO_FILE, str(path))
        yield file


def read_file(path: str | Path) -> bytes:
    """The content of a file.

    Raises:
        OSError: there is none, it cannot be read, or is no regular file.
    """
    with _opened(path) as file:
        return file.read()


def file_digest(path: Path) -> str:
    """Hex sha256 of a file."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_now(path: Path) -> str:
    """Hex sha256 of a file, "" where it cannot be read."""
    try:
        return file_digest(path)
    except OSError:
        return ""


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Path below ``folder`` → bytes and time of change in nanoseconds, of each file; hidden ones are left out.

    Links to folders are followed inside ``folder`` alone, and no folder is entered twice: one that is there under its
    own name has no other, whatever links to it.

    Raises:
        FolderError: a folder cannot be read, or is a link that leads out.
    """
    found: dict[str, tuple[int, int]] = {}
    root, waiting, links, entered = os.path.realpath(folder), [""], [], set()
    while waiting or links:
        # Links last, and by name: the order of a directory's entries differs from copy to copy.
        below = waiting.pop() if waiting else links.pop(links.index(min(links)))
        current = os.path.join(folder, below)
        real = os.path.realpath(current)
        if real in entered:
            continue
        if not is_inside(real, root):
            # Said of a whole folder: not to be left out as one bad image is.
            raise FolderError("a folder without links out of it", words.leads_out(current.rstrip("/"), real))
        entered.add(real)
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{below}{name}/")
                    elif entry.is_symlink() and os.path.isdir(entry.path):
                        links.append(f"{below}{name}/")
                    else:
                        found[below + name] = _stamp(entry)
        except OSError as error:
            hint = words.unreadable_folder(current.rstrip("/"), error.strerror)
            raise FolderError("folders that can be read", hint) from error
    return found


def is_inside(real: str, root: str) -> bool:
    """Whether a path is that of a folder or of something below it, both free of links."""
    return f"{real}{os.sep}".startswith(f"{root.rstrip(os.sep)}{os.sep}")


def _stamp(entry: os.DirEntry) -> tuple[int, int]:
    try:
        found = entry.stat()
    except OSError:
        # A link to nothing, or to itself.
        found = entry.stat(follow_symlinks=False)
    return found.st_size, found.st_mtime_ns
