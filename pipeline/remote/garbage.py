"""Garbage: objects that no manifest names, left by pushes that were cut (the remote's aid).

A listing only proposes. What is removed has lain there for the grace time, by the store's clock, is as it was listed,
and is named by no manifest that is read once the artefact's lease is ours: whoever pushes holds that lease.
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
from pipeline.remote.objects import CLOCKS, EXCHANGE, Stored

_KINDS = "|".join((layout.SOURCE, layout.RECORDS, layout.RUNS, layout.EXPORTS))
_KEY = re.compile(rf"(?P<kind>{_KINDS})/(?P<fingerprint>[0-9a-f]{{64}})/(?P<rest>.+)")
_LEASE_SECONDS = 60.0
# What nobody needs once it is old.
_PASSING = (CLOCKS, EXCHANGE)

_logger = logging.getLogger(__name__)


def find_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Objects that may be cleared away; nothing is changed, but for one small object that tells the time.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    now = remote.objects.now()
    yield from (one for one in remote.objects.list(CLOCKS) if now - one.written_at > grace)
    # By what a job wrote last: it may take longer than that.
    for _, group in itertools.groupby(remote.objects.list(EXCHANGE), lambda one: _folder_of(one.key)):
        left = list(group)
        if now - max(one.written_at for one in left) > grace:
            yield from left
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
        if folder.partition("/")[0] in _PASSING:
            yield from (one for one in found if _removed(remote, one))
            continue
        lease = Lease(remote.objects, folder, seconds=_LEASE_SECONDS)
        if holder := lease.take():
            _logger.info("%s/%s: left alone, %s is making it", remote.url, folder, holder.name)
            continue
        with lease.renewed():
            named = _named(remote, *folder.split("/"))
            for one in found:
                # The lease is ours by now.
                is_named = named is None or one.key in named or one.key.endswith(f"/{LEASE_NAME}")
                if not is_named and _removed(remote, one):
                    yield one


def _removed(remote: Remote, listed: Stored) -> bool:
    """Remove an object that is still as it was listed."""
    found = remote.objects.find(listed.key)
    if found is None or (found.tag, found.written_at) != (listed.tag, listed.written_at):
        return False
    remote.objects.delete(listed.key)
    return True


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
