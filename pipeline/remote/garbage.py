"""Garbage: objects that no manifest names, left by pushes that were cut (the remote's aid).

A listing only proposes. What is removed has lain there for the grace time, by the store's clock, and is named by no
manifest that is read once the artefact's lease is ours: who pushes the same at that moment has it, or waits for it.
"""

import itertools
import logging
import re
from collections.abc import Iterator
from datetime import timedelta

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME
from pipeline.errors import DamagedArtefactError
from pipeline.remote.artefacts import GRACE, Remote
from pipeline.remote.lease import LEASE_NAME, Lease
from pipeline.remote.objects import Stored

_KINDS = "|".join((layout.SOURCE, layout.RECORDS, layout.RUNS, layout.EXPORTS))
_KEY = re.compile(rf"(?P<kind>{_KINDS})/(?P<fingerprint>[0-9a-f]{{64}})/(?P<rest>.+)")
_LEASE_SECONDS = 60.0

_logger = logging.getLogger(__name__)


def find_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Objects that may be cleared away; nothing is changed, but for one small object that tells the time.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    now = remote.objects.now("garbage")
    # A store lists in the order of keys, so that those of an artefact follow one another.
    listed = ((match, one) for one in remote.objects.list() if (match := _KEY.fullmatch(one.key)))
    for (kind, fingerprint), group in itertools.groupby(listed, lambda pair: (pair[0]["kind"], pair[0]["fingerprint"])):
        old = [one for _, one in group if now - one.written_at > grace and not one.key.endswith(f"/{MANIFEST_NAME}")]
        if old and (named := _named(remote, kind, fingerprint)) is not None:
            yield from (one for one in old if one.key not in named)


def remove_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Remove what ``find_garbage`` finds, and give what was removed; an artefact that is being made is left alone.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    for folder, group in itertools.groupby(find_garbage(remote, grace=grace), lambda one: _folder_of(one.key)):
        found = list(group)
        lease = Lease(remote.objects, folder, seconds=_LEASE_SECONDS)
        if holder := lease.take():
            _logger.info("%s/%s: left alone, %s is making it", remote.url, folder, holder.name)
            continue
        with lease.renewed():
            named = _named(remote, *folder.split("/"))
            for one in found:
                # The lease is ours by now.
                if named is not None and one.key not in named and not one.key.endswith(f"/{LEASE_NAME}"):
                    remote.objects.delete(one.key)
                    yield one


def _named(remote: Remote, kind: str, fingerprint: str) -> set[str] | None:
    """Keys that the manifest of an artefact names; None where what is there cannot be told."""
    try:
        held = remote.find(kind, fingerprint)
    except DamagedArtefactError as error:
        _logger.warning("left alone: %s", error)
        return None
    entries = held.manifest["files"] if held else ()
    return {f"{kind}/{fingerprint}/files/{entry['sha256']}" for entry in entries}


def _folder_of(key: str) -> str:
    return "/".join(key.split("/")[:2])
