"""Lease: who is making an artefact now, so that no two machines make the same (the remote's middle).

One object beside the artefact's: created by whoever begins, renewed while the work goes on, removed at its end. One
that was not renewed for as long as it says has expired, whatever became of its holder, and the next one takes it over.
Ages are told by the store's clock alone, which writes the time of each object: clocks of the machines do not matter.

A lease saves work and guards nothing: who lost one unawares, as a laptop that slept, still publishes by a create-only
write.
"""

import contextlib
import json
import logging
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event, Thread

from pipeline.artefacts.staleness import printable
from pipeline.errors import RemoteError
from pipeline.remote.objects import Objects, Tag

LEASE_NAME = "lease.json"
_LEASE_BYTES = 10_000
# Renewed so many times before it would expire.
_RENEWALS = 4
_LONGEST_SECONDS = 3_600

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """Who has a lease: process and host, as they say, and for how many seconds more than it has been renewed."""

    name: str
    seconds_left: float


class Lease:
    """The right to make one artefact; see ``take``."""

    def __init__(self, objects: Objects, folder: str, *, seconds: float) -> None:
        """``folder`` is that of the artefact's objects."""
        self._objects, self._key, self._seconds = objects, f"{folder}/{LEASE_NAME}", seconds
        self._token, self._renewals = uuid.uuid4().hex, 0
        self._tag: Tag | None = None
        self._ended = Event()

    def take(self) -> Holder | None:
        """Take the lease if it is free; else who has it.

        Raises:
            RemoteError: the store does not answer, or refuses.
        """
        while True:
            if tag := self._objects.create(self._key, self._content()):
                self._tag = tag
                return None
            found = self._objects.read(self._key, at_most=_LEASE_BYTES)
            if found is None:
                continue
            content, stored = found
            written = _parsed(content)
            # Ours, where the answer to the write was lost on its way.
            if written.get("token") != self._token:
                left = _seconds(written) - (self._objects.now() - stored.written_at).total_seconds()
                holder = printable(str(written.get("holder", "unknown")))
                if left > 0:
                    return Holder(holder, left)
                _logger.info("%s/%s: taken over, %s let it expire", self._objects.url, self._key, holder)
                if not (tag := self._objects.swap(self._key, self._content(), stored.tag)):
                    continue
                self._tag = tag
                return None
            self._tag = stored.tag
            return None

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Keep the lease that was taken as long as the block lasts, and give it back at its end."""
        thread = Thread(target=self._keep, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(self._seconds)
            # Only what is still ours: a renewal finds that out.
            with contextlib.suppress(RemoteError):
                if not thread.is_alive() and self._renew():
                    self._objects.delete(self._key)

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / _RENEWALS):
            try:
                if not self._renew():
                    _logger.warning("%s/%s: lost, another machine may be making the same", self._objects.url, self._key)
                    return
            except RemoteError as error:
                # It may answer again before the lease expires.
                _logger.debug("lease not renewed: %s", error)

    def _renew(self) -> bool:
        self._renewals += 1
        self._tag = self._objects.swap(self._key, self._content(), self._tag) if self._tag else None
        return self._tag is not None

    def _content(self) -> bytes:
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        # Each renewal is another content: some stores give equal contents the same tag.
        told = {"holder": holder, "token": self._token, "seconds": self._seconds, "renewals": self._renewals}
        return json.dumps(told).encode()


def _parsed(content: bytes) -> dict:
    try:
        written = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return written if isinstance(written, dict) else {}


def _seconds(written: dict) -> float:
    """What a lease says it lasts, within reason: it is untrusted."""
    seconds = written.get("seconds")
    return float(min(seconds, _LONGEST_SECONDS)) if isinstance(seconds, int | float) else 0.0
