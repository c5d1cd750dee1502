"""Listing: the examples of a source of single files, split by split (the sources' aid); the standard library alone.

The source's artefact holds it. It says of each file what it was when it was looked at, so that "has anything changed?"
is answered by a look at names and stamps, and by reading the content of those files alone whose stamps differ.
"""

import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from pipeline.artefacts.verified import current_stamp, read_verified, write_verified
from pipeline.sources import words

LISTING_NAME = "examples.json"
KEY_BYTES = 16

#: Bytes, times of the last change of content and of the last change at all in nanoseconds, inode. Programs that copy
#: files can set all but the second time and the inode.
Stamp = Sequence[int]


@dataclass(frozen=True)
class ListedSplit:
    """One split, column by column, in the order of its paths, each (examples,).

    ``paths`` are below the source's folder, ``labels`` count from 0, ``stamps`` are as in ``stamps``, ``digests`` hex
    sha256 of the files; ``plain`` says which can be decoded as they are.
    """

    paths: Sequence[str]
    labels: Sequence[int]
    stamps: Sequence[Stamp]
    digests: Sequence[str]
    plain: Sequence[bool]

    @cached_property
    def keys(self) -> Sequence[str]:
        """The examples' keys: of one length, and the same wherever the folder lies."""
        return [path_key(path) for path in self.paths]


@dataclass(frozen=True)
class Skipped:
    """A file that is no example: why, one of a few reasons, and what was found.

    ``digest`` is "" where it could not be read; ``stamp`` is empty where it was not there.
    """

    path: str
    stamp: Stamp
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

    def changes(self, folder: Path, found: Mapping[str, Stamp], memory: Path) -> Iterator[str]:
        """What has changed since, a few words for each file.

        Args:
            folder: where the files lie now.
            found: path below ``folder`` → stamp of each file that is there now.
            memory: the source's artefact, where it is remembered which files were digested.
        """
        listed = self.stamps
        touched = [path for path, stamp in found.items() if listed.get(path) and [*stamp] != [*listed[path]]]
        same_size = [path for path in touched if found[path][0] == listed[path][0]]
        now = digests(folder, [*self.beside, *same_size], memory)
        for path, digest in self.beside.items():
            if now[path] != digest:
                yield (words.differs if now[path] else words.removed)(path)
        before = {path: digest for path, _, digest in self._files()}
        # What was listed and never there is still not there.
        yield from (words.removed(path) for path, stamp in listed.items() if stamp and path not in found)
        yield from (words.differs(path) for path in touched if now.get(path) != before[path])
        yield from (words.added(path) for path in found if not listed.get(path))

    @cached_property
    def stamps(self) -> Mapping[str, Stamp]:
        """Path → stamp of each file that was listed."""
        return {path: stamp for path, stamp, _ in self._files()}

    def _files(self) -> Iterator[tuple[str, Stamp, str]]:
        for one in self.splits.values():
            yield from zip(one.paths, one.stamps, one.digests, strict=True)
        yield from ((one.path, one.stamp, one.digest) for one in self.skipped)


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


def digests(folder: Path, names: Sequence[str], memory: Path | None) -> dict[str, str]:
    """Name → hex sha256 of each file of a folder, "" where it cannot be read.

    Args:
        folder: what ``names`` are below.
        names: of the files.
        memory: the artefact whose folder holds the digests of before: a file whose stamp is as it was then is not
            read. None: all are read, but once in a process.
    """
    known = read_verified(memory) if memory else {}
    with ThreadPoolExecutor() as pool:
        entries = dict(zip(names, pool.map(lambda name: _digested(folder / name, known.get(name)), names), strict=True))
    if memory and (new := {name: entry for name, entry in entries.items() if entry and entry != known.get(name)}):
        write_verified(memory, known | new)
    return {name: entry.get("sha256", "") for name, entry in entries.items()}


def _digested(path: Path, known: object) -> Mapping[str, int | str]:
    """The entry of a file for verified.json, {} where it cannot be read."""
    try:
        return current_stamp(path, known, file_digest)
    except OSError:
        return {}


def file_stamp(status: os.stat_result) -> Stamp:
    """What tells a file that was left alone from one that was written or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def stamps(folder: Path) -> dict[str, Stamp]:
    """Path below ``folder`` → stamp of each file; hidden ones are left out.

    Links to folders are followed inside ``folder`` alone, and no folder is entered twice: one that is there under its
    own name has no other, whatever links to it.

    Raises:
        FolderError: a folder cannot be read, or is a link that leads out.
    """
    found: dict[str, Stamp] = {}
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


def _stamp(entry: os.DirEntry) -> Stamp:
    try:
        return file_stamp(entry.stat())
    except OSError:
        # A link to nothing, or to itself.
        return file_stamp(entry.stat(follow_symlinks=False))
