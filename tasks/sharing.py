"""Sharing: what stages have from the remote and give to it ([Storage] remote); nothing where there is none.

A remote that does not answer ends no run: it is said once, the work goes on here, and what could not be pushed is noted
under the storage root and pushed by a later run.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import luigi.interface

from pipeline.artefacts.manifest import read_manifest
from pipeline.config import refuse
from pipeline.errors import BusyError, DamagedArtefactError, RemoteError
from tasks.storage import Storage, root_folder
from tasks.target import ArtefactTarget

if TYPE_CHECKING:
    from pipeline.remote.artefacts import Held, Pushed, Remote

#: Beside the artefacts: what is still to be pushed, an empty file for each.
UNPUSHED = ".unpushed"
# How often it is looked whether another machine is done.
_POLL_SECONDS = 5.0

_Answer = TypeVar("_Answer")
_logger = logging.getLogger(__name__)
# By kind and fingerprint, as long as this process lives; None: the remote has it not.
_known: dict[tuple[str, str], "Held | None"] = {}
_given_up: set[str] = set()


def is_on() -> bool:
    """Whether there is a remote, and it has answered so far."""
    url = Storage().remote
    return bool(url) and url not in _given_up


def required() -> "Remote":
    """The remote, for a command that is about it.

    Raises:
        SettingsError: there is none.
        RemoteError: it is no address of a store.
    """
    if not Storage().remote:
        refuse("Storage", "remote", "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix", "")
    return connect()


def connect() -> "Remote":
    """The remote of the settings; whether it answers is not asked.

    Raises:
        RemoteError: it is no address of a store.
    """
    # A tenth of a second, which most starts need not take.
    from pipeline.remote.artefacts import Remote
    from pipeline.remote.objects import Objects

    return Remote(Objects(Storage().remote, endpoint=Storage().remote_endpoint))


def found(kind: str, fingerprint: str) -> "Held | None":
    """What the remote has of an artefact, asked once in a process; None where it has nothing or does not answer."""
    key = (kind, fingerprint)
    if key not in _known:
        _known[key] = _asked(lambda: _find(kind, fingerprint))
    return _known[key] if is_on() else None


def fetch(kind: str, target: ArtefactTarget) -> bool:
    """Have the artefact from the remote; whether it is here now."""
    held = found(kind, target.expected)
    if held is None:
        return False
    _logger.info("%s: fetching %s, %s", held.manifest["stage"], target, made(held.manifest))
    if _asked(lambda: have(connect(), kind, target)):
        return True
    _known[kind, target.expected] = None
    return False


def _fetch_anew(kind: str, target: ArtefactTarget) -> bool:
    _known.pop((kind, target.expected), None)
    return fetch(kind, target)


def have(remote: "Remote", kind: str, target: ArtefactTarget) -> bool:
    """Fetch what the remote was found to have of an artefact; false: it had nothing.

    Raises:
        RemoteError, DamagedArtefactError, StorageError: it does not answer, what it has is damaged, the disk is full.
    """
    held = found(kind, target.expected)
    if held:
        remote.fetch(kind, held, target.folder, root=root_folder())
    return bool(held)


def give(remote: "Remote", kind: str, target: ArtefactTarget, *, replace: bool) -> "Pushed":
    """Push an artefact; how that ended.

    Raises:
        RemoteError: the remote does not answer, or refuses.
    """
    outcome = remote.push(kind, target.folder, replace=replace)
    _marker(kind, target).unlink(missing_ok=True)
    _known.pop((kind, target.expected), None)
    return outcome


def push(kind: str, target: ArtefactTarget, *, replace: bool = False, keep: bool = False) -> None:
    """Share an artefact that was made here; where another was first, theirs is taken unless ``keep``.

    Args:
        kind: of artefact.
        target: the artefact.
        replace: what the remote has may be older than what was found out here.
        keep: ours was asked for although there was one.
    """
    if not Storage().remote or Storage().push == "never" or not is_final(target.folder):
        return
    from pipeline.remote.artefacts import Pushed

    marker = _marker(kind, target)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    outcome = _asked(lambda: give(connect(), kind, target, replace=replace))
    if outcome is Pushed.NEW:
        _logger.info("pushed %s to %s", target.folder.name, Storage().remote)
    elif outcome is Pushed.OTHER and (keep or replace):
        _logger.warning("%s: another was on the remote first, the one made here stays here", target.folder.name)
    elif outcome is Pushed.OTHER:
        _logger.warning("%s: another was on the remote first, it is taken instead of this one", target.folder.name)
        fetch(kind, target)


def push_pending() -> None:
    """Push what earlier runs could not; what is no longer there is forgotten."""
    for marker in sorted((root_folder() / UNPUSHED).glob("*/*")):
        folder = root_folder() / marker.parent.name / marker.name
        try:
            expected = read_manifest(folder)["identity"]
        except DamagedArtefactError:
            marker.unlink(missing_ok=True)
            continue
        if is_on():
            push(marker.parent.name, ArtefactTarget(folder, expected))


@contextlib.contextmanager
def making(kind: str, target: ArtefactTarget, *, may_be_fetched: bool) -> Iterator[bool]:
    """The right to make an artefact, as long as the block lasts; true: another machine has made it meanwhile.

    Args:
        kind: of artefact.
        target: the artefact.
        may_be_fetched: whether what another machine has made would do.

    Raises:
        BusyError: another machine is making it, and ``[Storage] on_busy`` is ``leave``.
    """
    if not is_on() or Storage().push == "never":
        yield False
        return
    from pipeline.remote.lease import Lease

    def lease_of() -> Lease:
        return Lease(connect().objects, f"{kind}/{target.expected}", seconds=Storage().lease_seconds)

    lease, waits = _asked(lease_of), False
    while lease and (holder := _asked(lease.take)):
        if Storage().on_busy == "leave":
            raise BusyError(
                f"{target.folder.name}: {holder.name} is making it, and shares it through {Storage().remote}. Wait "
                "until it is done, or let runs wait by themselves with [Storage] on_busy = wait or "
                "--Storage-on-busy wait."
            )
        if not waits:
            _logger.info("%s: %s is making it, waiting", target.folder.name, holder.name)
            waits = True
        time.sleep(min(_POLL_SECONDS, holder.seconds_left + 1))
        if may_be_fetched and _fetch_anew(kind, target):
            yield True
            return
    if not lease or not is_on():
        yield False
        return
    with lease.renewed():
        # Between the question and the lease another may have ended.
        yield may_be_fetched and _fetch_anew(kind, target)


def made(manifest: dict) -> str:
    """When an artefact was made, and where."""
    return f"made on {manifest.get('host', 'another machine')}, {manifest['created_at']}"


def is_final(folder: Path) -> bool:
    """Whether an artefact is what was asked for, on the device that was asked for."""
    manifest = read_manifest(folder)
    return not manifest.get("provisional") and not manifest.get("fallback")


def _marker(kind: str, target: ArtefactTarget) -> Path:
    return root_folder() / UNPUSHED / kind / target.folder.name


def _asked(question: Callable[[], _Answer], otherwise: _Answer | None = None) -> _Answer | None:
    """The remote's answer; what goes wrong is said, and nothing is asked of it any more."""
    if not is_on():
        return otherwise
    try:
        return question()
    except RemoteError as error:
        _given_up.add(Storage().remote)
        _logger.warning("the remote is left out, what is made here is pushed by a later run: %s", error)
    except DamagedArtefactError as error:
        _logger.warning("not taken from the remote: %s", error)
    return otherwise


def _find(kind: str, fingerprint: str) -> "Held | None":
    if luigi.interface.core().workers == 1 or parent_process() is not None:
        return connect().find(kind, fingerprint)
    # Luigi is going to fork its workers from this process, which the library's threads would not survive.
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(_find_here, kind, fingerprint).result()


def _find_here(kind: str, fingerprint: str) -> "Held | None":
    return connect().find(kind, fingerprint)
