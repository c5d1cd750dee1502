"""Objects: the operations on an object store that sharing needs (the remote's floor; obstore).

A write is create-only, or replaces the version that an entity tag names: of two that write at once one is told so. The
store retries what failed in passing (a status of 5xx, a connection that was cut) by itself.
"""

import contextlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import RemoteError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Where a cluster's workers leave what they found out, each job's under a name of its own, as long as it runs.
EXCHANGE = "exchange"

# A larger file is uploaded in parts of that size, so many at a time: eight files take 256 MiB of memory.
_PART_BYTES, _PARTS_AT_A_TIME = 16 * 2**20, 2
_RETRIES, _RETRY_SECONDS = 5, 30
# Of a whole request: a mebibyte down, or a part up, on a slow line too.
_CONNECT_SECONDS, _REQUEST_SECONDS, _UPLOAD_SECONDS = 5, 60, 600

_REMEDIES = {
    "PermissionDeniedError": "The credentials that the environment has (AWS_ACCESS_KEY_ID, say) may not do that.",
    "UnauthenticatedError": "Give it credentials as the cloud's own tools take them, as AWS_ACCESS_KEY_ID.",
    "FileNotFoundError": "There is no such bucket. Set [Storage] remote to one that there is.",
}
_OTHERWISE = "See that [Storage] remote and remote_endpoint are right, and that it answers."


class Tag(NamedTuple):
    """What names one version of an object: its entity tag, and its number on stores that have one."""

    e_tag: str | None
    version: str | None


@dataclass(frozen=True)
class Stored:
    """An object: its key, bytes, tag, and the time at which it was written, by the store's clock."""

    key: str
    num_bytes: int
    tag: Tag
    written_at: datetime


class Objects:
    """A bucket, or a part of one under a prefix."""

    def __init__(self, url: str, *, endpoint: str = "") -> None:
        """Nothing is asked of the store yet.

        Args:
            url: ``s3://``, ``gs://`` or ``az://`` with bucket and prefix.
            endpoint: of a server that is compatible with S3; "": the cloud's own.

        Raises:
            RemoteError: it is no address of a store.
        """
        import obstore
        from obstore.store import from_url

        self.url = url.rstrip("/")
        self._obstore = obstore
        config = {"endpoint": endpoint} if endpoint else {}
        retries = {"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}

        def opened(request_seconds: int) -> "ObjectStore":
            options = {
                # An address that is https stays so; http is what the endpoint asks for.
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": f"{_CONNECT_SECONDS}s",
                "timeout": f"{request_seconds}s",
            }
            return from_url(self.url, config=config, client_options=options, retry_config=retries)

        with self._saying("open"):
            self._store, self._uploads = opened(_REQUEST_SECONDS), opened(_UPLOAD_SECONDS)

    def find(self, key: str) -> Stored | None:
        """What there is to say of an object; None where there is none.

        Raises:
            RemoteError: here and below, the store does not answer, or refuses.
        """
        with self._saying(key):
            try:
                return _stored(self._obstore.head(self._store, key))
            except FileNotFoundError:
                return None

    def read(self, key: str, *, at_most: int) -> tuple[bytes, Stored] | None:
        """The content of a small object, and what there is to say of it.

        Raises:
            RemoteError: also, it has more bytes than ``at_most``.
        """
        with self._saying(key):
            try:
                found = self._obstore.get(self._store, key)
            except FileNotFoundError:
                return None
            stored = _stored(found.meta)
            if stored.num_bytes > at_most:
                raise RemoteError(f"{self.url}/{key}: expected at most {at_most:,} bytes, found {stored.num_bytes:,}.")
            return bytes(found.bytes()), stored

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of an object, fewer at its end."""
        with self._saying(key):
            return bytes(self._obstore.get_range(self._store, key, start=start, length=length))

    def create(self, key: str, content: bytes) -> Tag | None:
        """Write an object unless there is one; its tag, or None where there is one."""
        with self._saying(key):
            try:
                return _tag(self._obstore.put(self._store, key, content, mode="create"))
            except self._obstore.exceptions.AlreadyExistsError:
                return None

    def swap(self, key: str, content: bytes, tag: Tag) -> Tag | None:
        """Replace the version of an object that ``tag`` names; its new tag, or None where it has another by now."""
        with self._saying(key):
            try:
                # Stores without versions have no such entry.
                mode = {name: value for name, value in tag._asdict().items() if value is not None}
                return _tag(self._obstore.put(self._store, key, content, mode=mode))
            except (self._obstore.exceptions.PreconditionError, FileNotFoundError):
                return None

    def put(self, key: str, content: Path | bytes) -> None:
        """Write a file, or bytes, as an object, in parts where it is large; one that is there is replaced."""
        with self._saying(key):
            how = {"chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_A_TIME}
            self._obstore.put(self._uploads, key, content, **how)

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        with self._saying(key), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, key)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """All objects under a prefix, page by page."""
        pages = iter(self._obstore.list(self._store, prefix or None))
        while True:
            with self._saying(prefix):
                page = next(pages, None)
            if page is None:
                return
            yield from map(_stored, page)

    def try_out(self) -> None:
        """Find out whether conditional writes are what they are on this store.

        Raises:
            RemoteError: also, a second write that was to create succeeds, or one that replaces a version does not.
        """
        key = f"{EXCHANGE}/{uuid.uuid4().hex}/trial"
        first = self.create(key, b"first")
        try:
            second = self.create(key, b"second")
            replaced = first and self.swap(key, b"third", first)
            again = first and self.swap(key, b"fourth", first)
        finally:
            self.delete(key)
        if not first or second or not replaced or again:
            raise RemoteError(
                f"{self.url}: expected writes that only create (If-None-Match) and that replace one version "
                "(If-Match), the store does not keep to them. Sharing would lose artefacts there: choose another store."
            )

    @contextlib.contextmanager
    def _saying(self, key: str) -> Iterator[None]:
        """The library's errors in a line that says what to do; it writes a page of its own state into them."""
        try:
            yield
        # An object that is missing is the language's own error.
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            remedy = _REMEDIES.get(type(error).__name__, _OTHERWISE)
            raise RemoteError(f"{self.url}/{key}: {_cause(str(error))}. {remedy}") from error


def _stored(meta: dict) -> Stored:
    return Stored(meta["path"], meta["size"], _tag(meta), meta["last_modified"])


def _tag(meta: dict) -> Tag:
    return Tag(meta["e_tag"], meta["version"])


def _cause(text: str) -> str:
    first = text.partition("\n")[0].strip()
    # A server's answer of 4xx or 5xx holds what it says of it; else what the client says comes last.
    code = re.search(r"<Code>(\w+)</Code>", text)
    status = re.search(r"status code: (\d{3})", first)
    if status or code:
        return " ".join(["it answers", *([status[1]] if status else []), *([f"({code[1]})"] if code else [])])
    return first.rpartition(" - ")[2].rstrip(". ") or first
