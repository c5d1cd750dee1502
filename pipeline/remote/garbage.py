"""Removes objects that no manifest names, as interrupted uploads leave them.

An object is removed if it is older than the grace time, unchanged since it was listed, and not named by the artifact's
manifest, which is read again before the removal. An upload writes such old objects again before it publishes.
"""

import itertools
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME
from pipeline.errors import DamagedArtefactError
from pipeline.remote.artefacts import GRACE, Remote
from pipeline.remote.objects import EXCHANGE, Stored

_KINDS = "|".join((layout.SOURCE, layout.RECORDS, layout.RUNS, layout.EXPORTS))
_KEY = re.compile(rf"(?P<kind>{_KINDS})/(?P<fingerprint>[0-9a-f]{{64}})/(?P<rest>.+)")

_logger = logging.getLogger(__name__)


def find_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """List the objects that may be removed.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    now = datetime.now(UTC)
    # The newest object of a job counts: a job may take longer than the grace time.
    for _, group in itertools.groupby(remote.objects.list(EXCHANGE), lambda one: _folder_of(one.key)):
        left = list(group)
        if now - max(one.written_at for one in left) > grace:
            yield from left
    # Stores list keys in order, so that the objects of an artifact follow one another.
    listed = ((match, one) for one in remote.objects.list() if (match := _KEY.fullmatch(one.key)))
    for (kind, fingerprint), group in itertools.groupby(listed, lambda pair: (pair[0]["kind"], pair[0]["fingerprint"])):
        old = [one for _, one in group if now - one.written_at > grace and not one.key.endswith(f"/{MANIFEST_NAME}")]
        if old and (named := _named(remote, kind, fingerprint)) is not None:
            yield from (one for one in old if one.key not in named)


def remove_garbage(remote: Remote, *, grace: timedelta = GRACE) -> Iterator[Stored]:
    """Remove what ``find_garbage`` lists, and yield what was removed.

    Raises:
        RemoteError: the store does not answer, or refuses.
    """
    for folder, group in itertools.groupby(find_garbage(remote, grace=grace), lambda one: _folder_of(one.key)):
        found = list(group)
        # A manifest may have come since the listing.
        named = set() if folder.startswith(f"{EXCHANGE}/") else _named(remote, *folder.split("/"))
        if named is not None:
            yield from (one for one in found if one.key not in named and _removed(remote, one))


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
