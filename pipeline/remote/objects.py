"""The operations on an object store that sharing needs, by obstore.

A write creates an object, or replaces the version that was read. obstore retries transient failures by itself.
"""

import contextlib
import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import RemoteError

#: The first part of the keys of running Beam jobs, ``exchange/<job>/…``.
EXCHANGE = "exchange"

# Larger files are uploaded in parts: eight files take 256 MiB of memory.
_PART_BYTES, _PARTS_AT_A_TIME = 16 * 2**20, 2
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
# Of a request, which receives a mebibyte or uploads a part, also on a slow line.
_TIMES = "60s", "600s"

_REMEDIES = {
    "PermissionDeniedError": "Set credentials with access, such as AWS_ACCESS_KEY_ID, in the environment.",
    "UnauthenticatedError": "Set credentials, such as AWS_ACCESS_KEY_ID, in the environment.",
    "FileNotFoundError": "The bucket does not exist. Set [Storage] remote to an existing bucket.",
}
_OTHERWISE = "Check [Storage] remote and remote_endpoint, and that the store is running."


class Stored(NamedTuple):
    """A version of an object. ``written_at`` is by the clock of the store; not every store has versions."""

    key: str
    num_bytes: int
    written_at: datetime
    e_tag: str | None
    version: str | None


class Objects:
    """A bucket, or a part of one under a prefix. Every method raises RemoteError if the store fails or refuses."""

    def __init__(self, url: str, *, endpoint: str = "") -> None:
        """Open ``s3://``, ``gs://`` or ``az://`` with bucket and prefix, without a request.

        ``endpoint`` is that of a server that is compatible with S3, or empty for the cloud's own.
        """
        import obstore
        from obstore.store import from_url

        self.url = url.rstrip("/")
        self._obstore = obstore
        config = {"endpoint": endpoint} if endpoint else {}
        # An address that is https stays so. http is for endpoints only.
        options = {"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s"}
        with self._explaining("open"):
            self._store, self._uploads = (
                from_url(self.url, config=config, client_options={**options, "timeout": time}, retry_config=_RETRIES)
                for time in _TIMES
            )

    def find(self, key: str) -> Stored | None:
        """The present version of an object, None if it does not exist."""
        with self._explaining(key), contextlib.suppress(FileNotFoundError):
            return _stored(self._obstore.head(self._store, key))
        return None

    def read(self, key: str, *, at_most: int) -> tuple[bytes, Stored] | None:
        """The content of a small object and its version. RemoteError: it has more bytes than ``at_most``."""
        with self._explaining(key), contextlib.suppress(FileNotFoundError):
            result = self._obstore.get(self._store, key)
            stored = _stored(result.meta)
            if stored.num_bytes > at_most:
                raise RemoteError(f"{self.url}/{key}: expected at most {at_most:,} bytes, found {stored.num_bytes:,}.")
            return bytes(result.bytes()), stored
        return None

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of an object, fewer at its end."""
        with self._explaining(key):
            return bytes(self._obstore.get_range(self._store, key, start=start, length=length))

    def create(self, key: str, content: bytes) -> bool:
        """Write an object unless it exists. Return whether it was written."""
        with self._explaining(key), contextlib.suppress(self._obstore.exceptions.AlreadyExistsError):
            self._obstore.put(self._store, key, content, mode="create")
            return True
        return False

    def swap(self, key: str, content: bytes, current_version: Stored) -> bool:
        """Replace a version of an object. Return whether it was still the current one."""
        # Stores without versions have no such entry.
        mode = {name: value for name in ("e_tag", "version") if (value := getattr(current_version, name)) is not None}
        is_another = self._obstore.exceptions.PreconditionError, FileNotFoundError
        with self._explaining(key), contextlib.suppress(*is_another):
            self._obstore.put(self._store, key, content, mode=mode)
            return True
        return False

    def put(self, key: str, content: Path | bytes) -> None:
        """Write or replace an object, in parts if it is large."""
        with self._explaining(key):
            options = {"chunk_size": _PART_BYTES, "max_concurrency": _PARTS_AT_A_TIME}
            self._obstore.put(self._uploads, key, content, **options)

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        with self._explaining(key), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, key)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """All objects under a prefix, page by page."""
        with self._explaining(prefix):
            for page in self._obstore.list(self._store, prefix or None):
                yield from map(_stored, page)

    def try_out(self) -> None:
        """Check that the store keeps to conditional writes, by an object that is removed again."""
        key = f"{EXCHANGE}/{uuid.uuid4().hex}/trial"
        try:
            outcomes = [self.create(key, b"first"), self.create(key, b"second")]
            if first := self.find(key):
                outcomes += [self.swap(key, b"third", first), self.swap(key, b"fourth", first)]
        finally:
            self.delete(key)
        if outcomes != [True, False, True, False]:
            raise RemoteError(
                f"{self.url}: expected conditional writes (If-None-Match and If-Match), but the store ignores them. "
                "Artifacts would be lost. Choose another store."
            )

    @contextlib.contextmanager
    def _explaining(self, key: str) -> Iterator[None]:
        """Raise the library's errors, which have a page of text, as one line with a remedy."""
        try:
            yield
        # The error of a missing object is Python's own.
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            remedy = _REMEDIES.get(type(error).__name__, _OTHERWISE)
            raise RemoteError(f"{self.url}/{key}: {_cause(str(error))}. {remedy}") from error


def _stored(meta: dict) -> Stored:
    return Stored(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"], meta["version"])


def _cause(text: str) -> str:
    """The status and code that a server answers with, or the last words of the client."""
    first = text.partition("\n")[0].strip()
    code = re.search(r"<Code>(\w+)</Code>", text)
    status = re.search(r"status code: (\d{3})", first)
    if status or code:
        return " ".join(["status", *([status[1]] if status else []), *([f"({code[1]})"] if code else [])])
    return first.rpartition(" - ")[2].rstrip(". ") or first
