"""Artefacts ⇄ objects: how what was made on one machine is had on another (the remote's middle).

Under ``<kind>/<fingerprint>/`` lie the files as ``files/<sha256>``, and ``manifest.json``, byte for byte as on the
machine that made it. Files come first, in any order and from several machines at once: what has the same digest is the
same. The manifest comes last, by a create-only write: without it nothing is there, and of two the first one counts.

The remote is untrusted. A manifest has to be of the fingerprint that was asked for, with names that stay in the folder;
each file is received up to the bytes that it lists, beside the storage root's artefacts, and takes its place only if
its digest is the one listed. What was received stays until then, so that a cut costs what was under way.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from threading import Event, Lock

from pipeline import progress
from pipeline.artefacts import layout
from pipeline.artefacts.manifest import FETCHED_NAME, MANIFEST_NAME, check_files, parse_manifest, write_fetched
from pipeline.artefacts.publish import publishing
from pipeline.artefacts.space import require_space, storage_error
from pipeline.artefacts.verified import VERIFIED_NAME, sha256_of, stamp_of, write_verified
from pipeline.errors import DamagedArtefactError, RemoteError
from pipeline.remote.objects import Objects, Tag

_AT_A_TIME = 8
_RANGE_BYTES = 2**20
_MANIFEST_BYTES = 64 * 2**20
_MOST_BYTES = 2**50
# An object of this age that no manifest names may be removed. The machine's clock is good enough, as stores refuse the
# requests of a machine whose clock differs from theirs by a quarter of an hour.
GRACE = timedelta(days=1)
_PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class Held:
    """An artefact on the remote: its manifest, as data and as its bytes, and what names that version of it."""

    manifest: dict
    content: bytes
    tag: Tag


class Pushed(StrEnum):
    """How a push ended."""

    NEW = "pushed"
    SAME = "there already, the same"
    OTHER = "there already, another"


class Remote:
    """Artefacts on an object store."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @property
    def url(self) -> str:
        """As the settings have it."""
        return self.objects.url

    def find(self, kind: str, fingerprint: str) -> Held | None:
        """The artefact of a fingerprint; None where there is none.

        Raises:
            RemoteError: here and below, the store does not answer, or refuses.
            DamagedArtefactError: what is there is no manifest of it.
        """
        place = f"{_folder(kind, fingerprint)}/{MANIFEST_NAME}"
        found = self.objects.read(place, at_most=_MANIFEST_BYTES)
        if found is None:
            return None
        content, stored = found
        manifest = parse_manifest(content, f"{self.url}/{place}", remedy=_REMEDY)
        if manifest["fingerprint"] != fingerprint:
            raise DamagedArtefactError(f"{self.url}/{place}: it is of {manifest['fingerprint'][:12]}…. {_REMEDY}")
        if wrong := _wrong(manifest):
            raise DamagedArtefactError(f"{self.url}/{place}: {wrong}. {_REMEDY}")
        return Held(manifest, content, stored.tag)

    def push(self, kind: str, folder: Path, *, replace: bool = False, mend: bool = False) -> Pushed:
        """Share the artefact in a folder.

        Args:
            kind: of artefact, the name of its folder under the storage root.
            folder: the artefact.
            replace: whether it takes the place of another of the same fingerprint that was made earlier.
            mend: whether what is there was found to be damaged, and is written anew to the last file.

        Raises:
            DamagedArtefactError: the folder's files are not what its manifest says, or the remote's manifest is none.
        """
        content = (folder / MANIFEST_NAME).read_bytes()
        manifest = parse_manifest(content, str(folder / MANIFEST_NAME))
        check_files(folder, manifest)
        place = _folder(kind, manifest["fingerprint"])
        key = f"{place}/{MANIFEST_NAME}"
        there = None
        if mend:
            there = self.objects.find(key)
        elif held := self.find(kind, manifest["fingerprint"]):
            is_same = _files(held.manifest) == _files(manifest)
            if not is_same and not (replace and held.manifest["created_at"] <= manifest["created_at"]):
                return Pushed.OTHER
            # Objects that are missing are put back; that they are all there is seen below.
            there = held
        sources = {entry["sha256"]: folder / entry["name"] for entry in manifest["files"]}
        sizes = {entry["sha256"]: entry["bytes"] for entry in manifest["files"]}
        now = datetime.now(UTC)

        def put(digest: str, told: Callable[[int], None]) -> None:
            found = None if mend else self.objects.find(f"{place}/files/{digest}")
            # What may be cleared away before the manifest names it is written again.
            is_old = not there and found and now - found.written_at > GRACE / 2
            if found is None or found.num_bytes != sizes[digest] or is_old:
                self.objects.put(f"{place}/files/{digest}", sources[digest])
            told(sizes[digest])

        _each(put, list(sources), f"push {kind}", sum(sizes.values()))
        if there and not mend and _files(there.manifest) == _files(manifest):
            return Pushed.SAME
        if there:
            return Pushed.NEW if self.objects.swap(key, content, there.tag) else Pushed.OTHER
        if self.objects.create(key, content):
            return Pushed.NEW
        # Someone was first; or we were, and the answer was lost on its way.
        first = self.objects.read(key, at_most=_MANIFEST_BYTES)
        if first is None:
            raise RemoteError(f"{self.url}/{key}: it was there and is gone.")
        if first[0] == content:
            return Pushed.NEW
        theirs = parse_manifest(first[0], f"{self.url}/{key}", remedy=_REMEDY)
        return Pushed.SAME if _files(theirs) == _files(manifest) else Pushed.OTHER

    def fetch(self, kind: str, held: Held, final: Path, *, root: Path) -> None:
        """Have the artefact in a folder, checked to the last byte.

        Raises:
            DamagedArtefactError: a file is not what the manifest lists.
            StorageError: there is not enough free disk space, or it cannot be written.
        """
        fingerprint, entries = held.manifest["fingerprint"], held.manifest["files"]
        received = root / layout.FETCHING / fingerprint
        sizes = {entry["sha256"]: entry["bytes"] for entry in entries}

        try:
            received.mkdir(parents=True, exist_ok=True)
            here = sum(path.stat().st_size for path in received.iterdir())
            require_space(root, max(0, sum(entry["bytes"] for entry in entries) - here))
            receive(self.objects, f"{_folder(kind, fingerprint)}/files", sizes, received, f"fetch {kind}")
        except OSError as error:
            raise storage_error(error, root, sum(sizes.values())) from error
        with publishing(final) as temporary:
            stamps, placed = {}, {}
            for entry in entries:
                path, digest = temporary / entry["name"], entry["sha256"]
                path.parent.mkdir(parents=True, exist_ok=True)
                # Several files may have the same content.
                if digest in placed:
                    shutil.copyfile(placed[digest], path)
                else:
                    os.replace(received / digest, path)
                placed[digest] = path
                stamps[entry["name"]] = stamp_of(path.stat(), digest)
            write_fetched(temporary, remote=self.url)
            write_verified(temporary, stamps)
            (temporary / MANIFEST_NAME).write_bytes(held.content)
        shutil.rmtree(received, ignore_errors=True)


_REMEDY = "It is not used."


def receive(objects: Objects, place: str, sizes: Mapping[str, int], folder: Path, what: str) -> None:
    """Have files below a key in a folder, called by their sha256 there too; resumes what an earlier try left.

    Args:
        objects: the store.
        place: the key that they lie below.
        sizes: sha256 → bytes of each.
        folder: on this machine.
        what: said of the progress.

    Raises:
        DamagedArtefactError: one is not there, or not what its sha256 says.
        RemoteError: the store does not answer, or refuses.
    """

    def get(digest: str, told: Callable[[int], None]) -> None:
        _receive(objects, f"{place}/{digest}", digest, sizes[digest], folder, told)

    _each(get, list(sizes), what, sum(sizes.values()))


def _receive(objects: Objects, key: str, digest: str, size: int, folder: Path, told: Callable[[int], None]) -> None:
    whole, part = folder / digest, folder / f"{digest}.part"
    # What an earlier process left is believed no more than the remote is: a power cut leaves zeros.
    if whole.exists() and sha256_of(whole) == digest:
        told(size)
        return
    stored = objects.find(key)
    if stored is None or stored.num_bytes != size:
        there = f"{stored.num_bytes:,}" if stored else "none"
        raise DamagedArtefactError(f"{objects.url}/{key}: expected {size:,} bytes, found {there}. {_REMEDY}")
    is_resumed = part.exists()
    found = _appended(objects, key, part, size, told)
    if found != digest and is_resumed:
        part.unlink()
        found = _appended(objects, key, part, size, told)
    if found != digest:
        part.unlink()
        raise DamagedArtefactError(
            f"{objects.url}/{key}: expected sha256 {digest[:12]}…, received {found[:12]}…. {_REMEDY}"
        )
    os.replace(part, whole)


def _appended(objects: Objects, key: str, part: Path, size: int, told: Callable[[int], None]) -> str:
    """Receive what a file lacks; the digest of all of it."""
    found = hashlib.sha256()
    with part.open("a+b") as file:
        file.seek(0)
        while block := file.read(_RANGE_BYTES):
            found.update(block)
        start = file.tell()
        told(start)
        while start < size:
            block = objects.read_range(key, start, min(_RANGE_BYTES, size - start))
            file.write(block)
            found.update(block)
            start += len(block)
            told(len(block))
    return found.hexdigest()


def _folder(kind: str, fingerprint: str) -> str:
    return f"{kind}/{fingerprint}"


def _wrong(manifest: Mapping) -> str:
    """What of a manifest nobody of ours has written; "" where nothing is.

    That it is sealed says nothing: anyone can seal.
    """
    if not all(isinstance(manifest.get(name, ""), str) for name in ("stage", "host")):
        return "its stage or host is no text"
    if manifest.get("provisional") or manifest.get("fallback"):
        return "it is of something that was not final"
    names = [Path(entry["name"]) for entry in manifest["files"]]
    folders = {parent for name in names for parent in name.parents}
    if any(name in folders for name in names):
        return "it lists a file that is a folder of another"
    for name in names:
        if name.name.startswith((MANIFEST_NAME, FETCHED_NAME, VERIFIED_NAME)) and len(name.parts) == 1:
            return f"it lists {name}, which is about the artefact and no part of it"
    if sum(entry["bytes"] for entry in manifest["files"]) > _MOST_BYTES:
        return "it lists more than any disk has"
    return ""


def _files(manifest: Mapping) -> dict[str, str]:
    return {entry["name"]: entry["sha256"] for entry in manifest["files"]}


def _each(work: Callable[[str, Callable[[int], None]], None], items: list[str], what: str, total: int) -> None:
    """Do it for each, some at a time, and tell how far it is; the first error ends it.

    Waits in short steps: a signal is handled between them, whatever the library's threads are doing.
    """
    done, lock, ended = [0], Lock(), Event()

    def told(num_bytes: int) -> None:
        if ended.is_set():
            raise RemoteError("ended by another failure")
        with lock:
            done[0] += num_bytes

    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="remote")
    futures = [pool.submit(work, item, told) for item in items]
    try:
        while True:
            finished, unfinished = wait(futures, timeout=_PROGRESS_SECONDS, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
            if total:
                progress.tell(what, done[0], total, "bytes")
            if not unfinished:
                return
    except KeyboardInterrupt:
        # Whatever is under way ends by itself, or with the process.
        ended.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        # Nothing of this is to write once the next begins.
        if not ended.is_set():
            ended.set()
            pool.shutdown(cancel_futures=True)
