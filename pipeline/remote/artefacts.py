"""Artefacts ⇄ objects: how what was made on one machine is had on another (the remote's middle).

Under ``<kind>/<fingerprint>/`` lie the files as ``files/<sha256>``, and ``manifest.json``, byte for byte as on the
machine that made it. Files come first, in any order and from several machines at once: what has the same digest is the
same. The manifest comes last, by a create-only write: without it nothing is there, and of two the first one counts.

The remote is untrusted. A manifest has to be of the fingerprint that was asked for, with names that stay in the folder;
each file is received up to the bytes that it lists, beside the storage root's artefacts, and takes its place only if
its digest is the one listed. What was received stays until then, so that a cut costs what was under way.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from threading import Event, Lock

from pipeline import progress
from pipeline.artefacts.fetched import write_fetched
from pipeline.artefacts.manifest import MANIFEST_NAME, check_files, parse_manifest, publishing
from pipeline.artefacts.space import require_space
from pipeline.artefacts.verified import stamp_of, write_verified
from pipeline.errors import DamagedArtefactError, RemoteError
from pipeline.remote.objects import Objects

#: Where what is being fetched lies, under the storage root.
RECEIVING = ".fetching"

_AT_A_TIME = 8
_RANGE_BYTES = 8 * 2**20
_MANIFEST_BYTES = 64 * 2**20
# An object that lies there for so long, and is named by no manifest, may be cleared away as garbage.
GRACE = timedelta(days=1)
_PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class Held:
    """An artefact on the remote: its manifest, as data and as its bytes, and their entity tag."""

    manifest: dict
    content: bytes
    tag: str


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
        return Held(manifest, content, stored.tag)

    def push(self, kind: str, folder: Path, *, replace: bool = False) -> Pushed:
        """Share the artefact in a folder.

        Args:
            kind: of artefact, the name of its folder under the storage root.
            folder: the artefact.
            replace: whether it takes the place of another of the same fingerprint.

        Raises:
            DamagedArtefactError: the folder's files are not what its manifest says.
        """
        content = (folder / MANIFEST_NAME).read_bytes()
        manifest = parse_manifest(content, str(folder / MANIFEST_NAME))
        check_files(folder, manifest)
        place = _folder(kind, manifest["fingerprint"])
        if (held := self._held(kind, manifest["fingerprint"])) and not replace:
            return _compared(held, content)
        sources = {entry["sha256"]: folder / entry["name"] for entry in manifest["files"]}
        sizes = {entry["sha256"]: entry["bytes"] for entry in manifest["files"]}
        now = self.objects.now(place)

        def put(digest: str, told: Callable[[int], None]) -> None:
            key = f"{place}/files/{digest}"
            found = self.objects.find(key)
            # What may be cleared away before the manifest names it is written again.
            if found is None or found.num_bytes != sizes[digest] or now - found.written_at > GRACE / 2:
                self.objects.put_file(key, sources[digest])
            told(sizes[digest])

        _each(put, list(sources), f"push {kind}", sum(sizes.values()))
        key = f"{place}/{MANIFEST_NAME}"
        if held:
            return Pushed.NEW if self.objects.swap(key, content, held.tag) else Pushed.OTHER
        if self.objects.create(key, content):
            return Pushed.NEW
        # Someone was first; or we were, and the answer was lost on its way.
        first = self.objects.read(key, at_most=_MANIFEST_BYTES)
        if first is None:
            raise RemoteError(f"{self.url}/{key}: it was there and is gone.")
        return Pushed.NEW if first[0] == content else _compared_bytes(first[0], content)

    def fetch(self, kind: str, held: Held, final: Path, *, root: Path) -> None:
        """Have the artefact in a folder, checked to the last byte.

        Raises:
            DamagedArtefactError: a file is not what the manifest lists.
            StorageError: there is not enough free disk space.
        """
        fingerprint, entries = held.manifest["fingerprint"], held.manifest["files"]
        received = root / RECEIVING / fingerprint
        sizes = {entry["sha256"]: entry["bytes"] for entry in entries}
        require_space(root, sum(entry["bytes"] for entry in entries))
        received.mkdir(parents=True, exist_ok=True)

        def get(digest: str, told: Callable[[int], None]) -> None:
            self._receive(f"{_folder(kind, fingerprint)}/files/{digest}", digest, sizes[digest], received, told)

        _each(get, list(sizes), f"fetch {kind}", sum(sizes.values()))
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

    def _held(self, kind: str, fingerprint: str) -> Held | None:
        """As ``find``; what is damaged is in the way of nobody who replaces it, and of nothing else."""
        try:
            return self.find(kind, fingerprint)
        except DamagedArtefactError as error:
            raise RemoteError(str(error)) from error

    def _receive(self, key: str, digest: str, size: int, folder: Path, told: Callable[[int], None]) -> None:
        whole, part = folder / digest, folder / f"{digest}.part"
        if whole.exists():
            told(size)
            return
        stored = self.objects.find(key)
        if stored is None or stored.num_bytes != size:
            there = f"{stored.num_bytes:,}" if stored else "none"
            raise DamagedArtefactError(f"{self.url}/{key}: the manifest lists {size:,} bytes, found {there}. {_REMEDY}")
        found = hashlib.sha256()
        with part.open("a+b") as file:
            file.seek(0)
            while block := file.read(_RANGE_BYTES):
                found.update(block)
            start = file.tell()
            told(start)
            while start < size:
                block = self.objects.read_range(key, start, min(_RANGE_BYTES, size - start))
                if not block:
                    break
                file.write(block)
                found.update(block)
                start += len(block)
                told(len(block))
        if start != size or found.hexdigest() != digest:
            part.unlink()
            raise DamagedArtefactError(
                f"{self.url}/{key}: the manifest lists {size:,} bytes of sha256 {digest[:12]}…, received {start:,} of "
                f"{found.hexdigest()[:12]}…. {_REMEDY}"
            )
        os.replace(part, whole)


_REMEDY = "It is not used."


def _folder(kind: str, fingerprint: str) -> str:
    return f"{kind}/{fingerprint}"


def _compared(held: Held, content: bytes) -> Pushed:
    return _compared_bytes(held.content, content)


def _compared_bytes(theirs: bytes, ours: bytes) -> Pushed:
    return Pushed.SAME if _files(json.loads(theirs)) == _files(json.loads(ours)) else Pushed.OTHER


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
    finally:
        ended.set()
        pool.shutdown(wait=False, cancel_futures=True)
