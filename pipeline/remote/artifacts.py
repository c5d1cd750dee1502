"""Share artifacts between machines through an object store.

A push uploads the files first, as ``<kind>/<fingerprint>/files/<sha256>``, and ``manifest.json`` last, by a create-only
write. An artifact without a manifest does not exist, and of two the first one counts.

The remote is untrusted. A fetch checks the fingerprint, the names and sizes in the manifest, and the digest of each
file before the artifact takes its place. An interrupted fetch keeps the files that it received.

Interrupted pushes leave objects that no manifest names, and parts of large files. Such an object is removed if it is
older than the grace time, unchanged since it was listed, and not named by the artifact's manifest, which is read again
before the removal. A push writes such old objects again before it publishes.
"""

import itertools
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import NamedTuple
from urllib.parse import urlsplit

from pipeline import progress
from pipeline.artifacts import layout
from pipeline.artifacts.manifest import FETCHED_NAME, MANIFEST_NAME, check_files, parse_manifest, write_fetched
from pipeline.artifacts.publish import publishing, require_space, storage_error
from pipeline.artifacts.stamps import VERIFIED_NAME, sha256_of, stamp_of, write_verified
from pipeline.errors import DamagedArtifactError, RemoteError
from pipeline.remote.objects import EXCHANGE, Objects, Stored

_AT_A_TIME = 8
_RANGE_BYTES = 2**20
_MANIFEST_BYTES = 64 * 2**20
_MOST_BYTES = 2**50
#: An older object that no manifest names may be removed. Stores refuse requests of a machine whose clock differs much.
GRACE = timedelta(days=1)
_PROGRESS_SECONDS = 0.5
_REMEDY = "The copy on the remote is ignored."
_KEY = re.compile(rf"({'|'.join(layout.KINDS)})/[0-9a-f]{{64}}/.+")

_logger = logging.getLogger(__name__)

# Reports a number of bytes.
ReportBytes = Callable[[int], None]


class StoredArtifact(NamedTuple):
    """An artifact on the remote: its manifest as data and as bytes, and the version of that object."""

    manifest: dict
    content: bytes
    stored: Stored


class Pushed(StrEnum):
    """How a push ended."""

    NEW = "pushed"
    SAME = "already on the remote"
    CONFLICT = "the remote has another copy"


class Remote:
    """Artifacts on an object store. Every method raises RemoteError if the store fails or refuses."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.url = objects.url

    def find(self, kind: str, fingerprint: str) -> StoredArtifact | None:
        """The artifact of a fingerprint, None if the remote does not have it. DamagedArtifactError: it is invalid."""
        key = f"{kind}/{fingerprint}/{MANIFEST_NAME}"
        found = self.objects.read(key, at_most=_MANIFEST_BYTES)
        if found is None:
            return None
        manifest = parse_manifest(found[0], f"{self.url}/{key}", remedy=_REMEDY)
        if wrong := _wrong(manifest, fingerprint):
            raise DamagedArtifactError(f"{self.url}/{key}: {wrong}. {_REMEDY}")
        return StoredArtifact(manifest, *found)

    def push(self, kind: str, folder: Path, *, replace: bool = False, mend: bool = False) -> Pushed:
        """Upload the artifact in a folder. ``kind`` is the name of the folder of such artifacts.

        With ``replace``, it replaces another one of the same fingerprint that was made earlier. With ``mend``, the
        artifact on the remote is damaged, and all of it is written again.
        """
        content = (folder / MANIFEST_NAME).read_bytes()
        manifest = parse_manifest(content, str(folder / MANIFEST_NAME))
        check_files(folder, manifest)
        fingerprint = manifest["fingerprint"]
        key = f"{kind}/{fingerprint}/{MANIFEST_NAME}"
        stored_copy = None if mend else self.find(kind, fingerprint)
        current_version = self.objects.find(key) if mend else stored_copy and stored_copy.stored
        is_same = stored_copy is not None and _files(stored_copy.manifest) == _files(manifest)
        is_kept = stored_copy and not (replace and stored_copy.manifest["created_at"] <= manifest["created_at"])
        if is_kept and not is_same:
            return Pushed.CONFLICT
        # Files of the same artifact that are missing are written again.
        self._put_files(kind, folder, manifest, is_published=current_version is not None, mend=mend)
        if is_same:
            return Pushed.SAME
        if current_version:
            return Pushed.NEW if self.objects.swap(key, content, current_version) else Pushed.CONFLICT
        if self.objects.create(key, content):
            return Pushed.NEW
        # Another was first, or this one was and the answer was lost.
        published = self.find(kind, fingerprint)
        if published is None:
            raise RemoteError(f"{self.url}/{key}: another process removed this object. Run again.")
        is_same = _files(published.manifest) == _files(manifest)
        return Pushed.NEW if published.content == content else Pushed.SAME if is_same else Pushed.CONFLICT

    def _put_files(self, kind: str, folder: Path, manifest: Mapping, *, is_published: bool, mend: bool) -> None:
        prefix = f"{kind}/{manifest['fingerprint']}/files"
        entries = {entry["sha256"]: entry for entry in manifest["files"]}
        now = datetime.now(UTC)

        def put(digest: str, tell: ReportBytes) -> None:
            entry, key = entries[digest], f"{prefix}/{digest}"
            found = None if mend else self.objects.find(key)
            # Garbage collection may remove an old object before the manifest names it.
            is_old = not is_published and found and now - found.written_at > GRACE / 2
            if found is None or found.num_bytes != entry["bytes"] or is_old:
                self.objects.put(key, folder / entry["name"])
            tell(entry["bytes"])

        _each(put, list(entries), f"push {kind}", sum(entry["bytes"] for entry in entries.values()))

    def fetch(self, kind: str, stored_copy: StoredArtifact, final: Path, *, root: Path) -> None:
        """Download an artifact into a folder, and check every byte."""
        fingerprint, entries = stored_copy.manifest["fingerprint"], stored_copy.manifest["files"]
        received = root / layout.FETCHING / fingerprint
        sizes = {entry["sha256"]: entry["bytes"] for entry in entries}
        try:
            received.mkdir(parents=True, exist_ok=True)
            num_received = sum(path.stat().st_size for path in received.iterdir())
            require_space(root, max(0, sum(entry["bytes"] for entry in entries) - num_received))
            receive(self.objects, f"{kind}/{fingerprint}/files", sizes, received, f"fetch {kind}")
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
                    placed[digest] = (received / digest).replace(path)
                stamps[entry["name"]] = stamp_of(path.stat(), digest)
            write_fetched(temporary, remote=self.url)
            write_verified(temporary, stamps)
            (temporary / MANIFEST_NAME).write_bytes(stored_copy.content)
        shutil.rmtree(received, ignore_errors=True)


def receive(objects: Objects, prefix: str, sizes: Mapping[str, int], folder: Path, description: str) -> None:
    """Download files, whose names are their sha256, and continue with those that an earlier try left.

    ``prefix`` is the key above the files, and ``sizes`` maps sha256 → bytes of each. ``description`` names the work for
    the progress. DamagedArtifactError: a file does not exist, or differs from its sha256.
    """

    def get(digest: str, tell: ReportBytes) -> None:
        key, size = f"{prefix}/{digest}", sizes[digest]
        whole, part = folder / digest, folder / f"{digest}.part"
        # Files of an earlier process are checked too: a power cut leaves zeros.
        if whole.exists() and sha256_of(whole) == digest:
            tell(size)
            return
        stored = objects.find(key)
        if stored is None or stored.num_bytes != size:
            found = f"{stored.num_bytes:,}" if stored else "none"
            raise DamagedArtifactError(f"{objects.url}/{key}: expected {size:,} bytes, found {found}. {_REMEDY}")
        for _ in range(2 if part.exists() else 1):
            with part.open("ab") as file:
                tell(file.tell())
                for start in range(file.tell(), size, _RANGE_BYTES):
                    tell(file.write(objects.read_range(key, start, min(_RANGE_BYTES, size - start))))
            if (found := sha256_of(part)) == digest:
                part.replace(whole)
                return
            part.unlink()
        received = f"expected sha256 {digest[:12]}…, received {found[:12]}…"
        raise DamagedArtifactError(f"{objects.url}/{key}: {received}. {_REMEDY}")

    _each(get, list(sizes), description, sum(sizes.values()))


def _wrong(manifest: Mapping, fingerprint: str) -> str:
    """An error in a manifest that this project does not write, or an empty string. Anyone can seal a manifest."""
    if manifest["fingerprint"] != fingerprint:
        return f"expected another fingerprint, got {manifest['fingerprint'][:12]}…"
    if not all(isinstance(manifest.get(name, ""), str) for name in ("stage", "host")):
        return "the stage or host in the manifest is not a text"
    if manifest.get("provisional") or manifest.get("fallback"):
        return "the artifact is not final"
    names = [Path(entry["name"]) for entry in manifest["files"]]
    folders = {parent for name in names for parent in name.parents}
    if any(name in folders for name in names):
        return "a file in the manifest is also a folder"
    for name in names:
        if name.name.startswith((MANIFEST_NAME, FETCHED_NAME, VERIFIED_NAME)) and len(name.parts) == 1:
            return f"the manifest lists {name}, which is a reserved name"
    if sum(entry["bytes"] for entry in manifest["files"]) > _MOST_BYTES:
        return f"the manifest lists more than {_MOST_BYTES:,} bytes"
    return ""


def _files(manifest: Mapping) -> dict[str, str]:
    return {entry["name"]: entry["sha256"] for entry in manifest["files"]}


def _each(work: Callable[[str, ReportBytes], None], items: list[str], description: str, total: int) -> None:
    """Call ``work`` for each item, several at a time, and report the progress. The first error ends all.

    Waits in short steps, so that a signal is handled between them.
    """
    done: list[int] = []
    ended = Event()

    def tell(num_bytes: int) -> None:
        if ended.is_set():
            raise RemoteError("Stopped after the failure of another transfer.")
        done.append(num_bytes)

    pool = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="remote")
    futures = [pool.submit(work, item, tell) for item in items]
    try:
        while True:
            finished, unfinished = wait(futures, timeout=_PROGRESS_SECONDS, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()
            if total:
                progress.report(description, sum(done), total, "bytes")
            if not unfinished:
                return
    finally:
        ended.set()
        # No thread may write after an error. After an interrupt they end by themselves, or with the process.
        pool.shutdown(wait=not isinstance(sys.exception(), KeyboardInterrupt), cancel_futures=True)


def unreferenced_objects(remote: Remote, *, is_removing: bool = False, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Yield the old objects that no manifest names. If ``is_removing``, remove those to which that still applies."""
    for listed in _unreferenced(remote, grace):
        if not is_removing or _removed(remote, listed):
            yield listed


def _unreferenced(remote: Remote, grace: timedelta) -> Iterator[Stored]:
    now = datetime.now(UTC)
    # The newest object of a job counts: a job may take longer than the grace time.
    for _, group in itertools.groupby(remote.objects.list(EXCHANGE), _folder_of):
        left = list(group)
        if now - max(one.written_at for one in left) > grace:
            yield from left
    # Stores list keys in order, so that the objects of an artifact follow one another.
    listed = (one for one in remote.objects.list() if _KEY.fullmatch(one.key))
    for folder, group in itertools.groupby(listed, _folder_of):
        old = [one for one in group if now - one.written_at > grace and not one.key.endswith(f"/{MANIFEST_NAME}")]
        if old and (named := _named(remote, folder)) is not None:
            yield from (one for one in old if one.key not in named)


def _removed(remote: Remote, listed: Stored) -> bool:
    """Remove a listed object, unless it changed since, or a manifest names it now."""
    folder = _folder_of(listed)
    named = set() if folder.startswith(f"{EXCHANGE}/") else _named(remote, folder)
    if named is None or listed.key in named or remote.objects.find(listed.key) != listed:
        return False
    remote.objects.delete(listed.key)
    return True


def _named(remote: Remote, folder: str) -> set[str] | None:
    """Keys that the manifest of an artifact names, None if it is damaged."""
    try:
        stored_artifact = remote.find(*folder.split("/"))
    except DamagedArtifactError as error:
        _logger.warning("Not removed. %s", error)
        return None
    entries = stored_artifact.manifest["files"] if stored_artifact else ()
    return {f"{folder}/files/{entry['sha256']}" for entry in entries}


def _folder_of(stored: Stored) -> str:
    return "/".join(stored.key.split("/")[:2])


def interrupted_uploads(
    url: str, *, endpoint: str = "", is_removing: bool = False, grace: timedelta = GRACE
) -> Iterator[tuple[str, datetime]]:
    """Yield key and start of each old, unfinished upload in parts to S3. If ``is_removing``, abort it.

    Other stores remove such parts by themselves. boto3 lists and aborts uploads, which obstore cannot.
    ModuleNotFoundError: boto3 is not installed.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    parts = urlsplit(url)
    bucket, prefix = parts.netloc, parts.path.strip("/")
    region = boto3.session.Session().region_name or "us-east-1"
    try:
        client = boto3.client("s3", endpoint_url=endpoint or None, region_name=region)
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix and f"{prefix}/"):
            for upload in page.get("Uploads", ()):
                if datetime.now(UTC) - upload["Initiated"] > grace:
                    if is_removing:
                        client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    yield upload["Key"], upload["Initiated"]
    except (BotoCoreError, ClientError) as error:
        raise RemoteError(f"s3://{bucket}/{prefix}: uploads cannot be listed or aborted ({error}).") from error
