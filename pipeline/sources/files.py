"""Walks, contents, digests and stamps of user files, and their index in the source's artifact."""

import codecs
import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, wraps
from pathlib import Path
from threading import Lock
from typing import NamedTuple, NoReturn, TypeVar

from pipeline.artifacts.stamps import current_stamp, read_verified, write_verified
from pipeline.errors import message

#: Bytes, times of the last change of content and of any change in nanoseconds, inode. Programs that copy files can set
#: neither the second time nor the inode.
Stamp = Sequence[int]
Result = TypeVar("Result")

INDEX_NAME = "examples.json"
KEY_BYTES = 16

# A text with so few zero bytes is damaged.
_MIN_ZEROS = 8


class UndecodableError(ValueError):
    """A file or a part of one is no usable image or text. ``reason`` is one of a few. ``detail`` describes the file."""

    def __init__(self, reason: str, detail: object = "") -> None:
        self.reason, self.detail = reason, str(detail)
        super().__init__(": ".join(filter(None, (reason, self.detail))))


@contextmanager
def reading_damaged() -> Iterator[None]:
    """Raise UndecodableError for any error of a library that reads an image from a damaged file."""
    try:
        yield
    except UndecodableError:
        raise
    except Exception as error:
        raise UndecodableError("damaged or cut off", error) from error


@message
def quoted(path: str) -> str:
    """A path as printable text on one line."""
    return path if path.isprintable() else ascii(path)


@message
def leads_out(link: str, to: str) -> str:
    """Hint that a link leads out of the folder."""
    return f" {quoted(link)} is a link to {to}, outside the folder. Replace the link with a copy."


def stamps(folder: Path, refuse: Callable[[str, str], NoReturn]) -> dict[str, Stamp]:
    """Stamps of all files below ``folder``, by path. Hidden files are left out.

    A link to a folder inside ``folder`` is left out, because its files have their own names. If a folder cannot be
    read, or a link leads out of ``folder``, ``refuse`` gets a hint and the expected data.
    """
    stamps, root = {}, os.path.realpath(folder)

    def fail(error: OSError) -> NoReturn:
        refuse(f" {quoted(error.filename)} cannot be read ({error.strerror}).", "readable folders")

    for current, subfolders, names in os.walk(folder, onerror=fail):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for link in filter(os.path.islink, (os.path.join(current, name) for name in subfolders)):
            if not is_inside(real := os.path.realpath(link), root):
                refuse(leads_out(link, real), "a folder without links to other folders")
        prefix = "" if current == str(folder) else f"{os.path.relpath(current, folder)}/"
        paths = [prefix + name for name in names if not name.startswith(".")]
        existing = stamps_of(folder, paths)
        # A link to nothing, or to itself.
        stamps |= existing | stamps_of(folder, [path for path in paths if path not in existing], os.lstat)
    return stamps


def stamps_of(folder: Path, paths: Iterable[str], stat_of: Callable = os.stat) -> dict[str, Stamp]:
    """Stamps of the existing files, by path."""
    stamps, top = {}, os.fspath(folder)
    for path in paths:
        with suppress(OSError):
            stamps[path] = _stamp(stat_of(os.path.join(top, path)))
    return stamps


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def cached_until_replaced(read: Callable[..., Result]) -> Callable[..., Result]:
    """Cache the last two results of a function of a path. Threads wait for each other, so that a file is read once."""
    cached, lock = lru_cache(maxsize=2)(lambda stamp, *arguments: read(*arguments)), Lock()

    @wraps(read)
    def of_present_file(path: str | Path, *arguments: object) -> Result:
        with lock:
            return cached(_stamp(os.stat(path)), path, *arguments)

    of_present_file.cache_clear = cached.cache_clear
    return of_present_file


def is_inside(real: str, root: str) -> bool:
    """Whether a path is ``root`` or below it. Both must be free of links."""
    return f"{real}{os.sep}".startswith(f"{root.rstrip(os.sep)}{os.sep}")


@contextmanager
def _opened(path: str | Path) -> Iterator[io.FileIO]:
    # Opening a named pipe would block. No buffer, because its creation takes as long as reading a small file.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        yield file


def read_file(path: str | Path) -> bytes:
    """Read a file. OSError: it is missing, cannot be read, or is no regular file."""
    with _opened(path) as file:
        return file.read()


def read_below(folder: str, path: str) -> bytes:
    """Read a file of a folder. UndecodableError: it cannot be read, or a link leads out of the folder."""
    full_path = os.path.join(folder, path)
    # Few files are links.
    real = os.path.realpath(full_path) if os.path.islink(full_path) else _real(os.path.dirname(full_path))
    if not is_inside(real, _real(folder)):
        raise UndecodableError("a link to a file outside the folder")
    try:
        return read_file(full_path)
    except FileNotFoundError as error:
        raise UndecodableError("file not found") from error
    except OSError as error:
        raise UndecodableError("cannot be read", error.strerror or error) from error


_real = lru_cache(maxsize=4_096)(os.path.realpath)


def first_bytes(path: Path, size: int = 65_536) -> bytes:
    """The first bytes of a file. Empty if it cannot be read."""
    with suppress(OSError), _opened(path) as file:
        return file.read(size)
    return b""


def file_digest(path: Path) -> str:
    """Hex sha256 of a file."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, names: Sequence[str], memory: Path | None) -> dict[str, str]:
    """Hex sha256 of files in a folder, by name. "" if a file cannot be read.

    ``memory`` is the artifact with earlier digests. A file with the same stamp is not read again.
    """
    recorded = read_verified(memory) if memory else {}

    def entry(name: str) -> Mapping[str, int | str]:
        with suppress(OSError):
            return current_stamp(folder / name, recorded.get(name), file_digest)
        return {}

    with ThreadPoolExecutor() as pool:
        stamps = dict(zip(names, pool.map(entry, names), strict=True))
    merged = recorded | {name: stamp for name, stamp in stamps.items() if stamp}
    if memory and merged != recorded:
        write_verified(memory, merged)
    return {name: stamp.get("sha256", "") for name, stamp in stamps.items()}


def decode_text(content: bytes) -> str:
    """Decode a text in UTF-8, without a byte order mark. UndecodableError: it has another encoding, which is named."""
    # In UTF-16 half the bytes of European languages are zero, and every second byte of spaces and line ends.
    even, odd = content[::2].count(0), content[1::2].count(0)
    is_striped = max(even, odd) > max(_MIN_ZEROS, len(content) / 16, 8 * min(even, odd))
    # The mark of UTF-32 begins with that of UTF-16.
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "UTF-32"
    elif is_striped or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    else:
        encoding = ""
        with suppress(UnicodeDecodeError):
            return content.decode("utf-8-sig")
    raise UndecodableError(
        "not UTF-8 text",
        f"The file is in {encoding or 'another encoding, such as Latin-1 or Windows-1252'}. Save it in UTF-8",
    )


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
        content = {split: [one.paths, one.labels, one.digests, one.groups] for split, one in self.splits.items()}
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
        return f"{self.split}-{range(self.num_examples)[which]:09d}"
