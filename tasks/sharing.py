"""Sharing: what stages have from the remote and give to it ([Storage] remote); nothing where there is none.

A remote that does not answer ends no run: it is said once, the work goes on here, and what could not be pushed is noted
under the storage root and pushed by a later run. With ``[Storage] on_remote_error = fail`` it ends the run: where the
root goes with the machine there is no later one.
"""

import contextlib
import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import luigi.interface

from pipeline.artefacts import layout
from pipeline.artefacts.fingerprint import printable
from pipeline.artefacts.manifest import read_fetched, read_manifest
from pipeline.config.refusal import refuse
from pipeline.errors import DamagedArtefactError, RemoteError, StorageError, UnreadableArtefactError
from tasks.storage import Storage, root_folder
from tasks.target import ArtefactTarget

if TYPE_CHECKING:
    from pipeline.remote.artefacts import Held, Pushed, Remote

_Answer = TypeVar("_Answer")
_logger = logging.getLogger(__name__)
# By kind and fingerprint, as long as this process lives; None: the remote has it not.
_known: dict[tuple[str, str], "Held | None"] = {}
_given_up: set[str] = set()
# Found to be damaged on the remote.
_damaged: set[tuple[str, str]] = set()


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
    if key in _damaged:
        return None
    if key not in _known:
        _known[key] = _asked(lambda: _find(kind, fingerprint), about=key)
    return _known[key] if is_on() else None


def fetch(kind: str, target: ArtefactTarget) -> bool:
    """Have the artefact from the remote; whether it is here now."""
    held = found(kind, target.expected)
    if held is None:
        return False
    _logger.info("%s: fetching %s, %s", held.manifest["stage"], target, made(held.manifest))
    return bool(_asked(lambda: have(connect(), kind, target), about=(kind, target.expected)))


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
        DamagedArtefactError: the artefact is not what its manifest says.
    """
    key = (kind, target.expected)
    outcome = remote.push(kind, target.folder, replace=replace, mend=key in _damaged)
    _damaged.discard(key)
    _marker(kind, target.folder).unlink(missing_ok=True)
    _known.pop(key, None)
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

    # On a full disk the artefact is there all the same.
    with contextlib.suppress(OSError):
        marker = _marker(kind, target.folder)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text("replace" if replace else "", encoding="utf-8")
    outcome = _asked(lambda: give(connect(), kind, target, replace=replace))
    if outcome is Pushed.NEW:
        _logger.info("pushed %s to %s", target.folder.name, Storage().remote)
        # Of a fetch that did not come to its end.
        shutil.rmtree(root_folder() / layout.FETCHING / target.expected, ignore_errors=True)
    elif outcome is Pushed.OTHER and (keep or replace):
        _logger.warning("%s: another was on the remote first, the one made here stays here", target.folder.name)
    elif outcome is Pushed.OTHER:
        _logger.warning("%s: another was on the remote first, it is taken instead of this one", target.folder.name)
        fetch(kind, target)


def unpushed() -> set[Path]:
    """The folders of artefacts that an earlier run was to push and could not."""
    markers = (root_folder() / layout.UNPUSHED).glob("*/*")
    folders = {root_folder() / marker.parent.name / marker.name for marker in markers}
    return {folder for folder in folders if folder.is_dir()}


def push_pending() -> None:
    """Push what earlier runs could not; what is no longer there is forgotten, and nothing here is replaced."""
    for marker in sorted((root_folder() / layout.UNPUSHED).glob("*/*")):
        kind, folder = marker.parent.name, root_folder() / marker.parent.name / marker.name
        try:
            target = ArtefactTarget(folder, read_manifest(folder)["identity"])
        except UnreadableArtefactError:
            # It may be read again.
            continue
        except DamagedArtefactError:
            marker.unlink(missing_ok=True)
            continue
        push(kind, target, replace=marker.read_text(encoding="utf-8") == "replace", keep=True)


def made(manifest: dict) -> str:
    """When an artefact was made, and where."""
    return printable(f"made on {manifest.get('host', 'another machine')}, {manifest['created_at']}")


def is_final(folder: Path) -> bool:
    """Whether an artefact was made here, is what was asked for, and on the device that was asked for."""
    return not stands_in(folder) and not read_fetched(folder)


def stands_in(folder: Path) -> bool:
    """Whether an artefact that is here is not final, or of another device than was asked for."""
    with contextlib.suppress(DamagedArtefactError):
        manifest = read_manifest(folder)
        return bool(manifest.get("provisional") or manifest.get("fallback"))
    return False


def _marker(kind: str, folder: Path) -> Path:
    return root_folder() / layout.UNPUSHED / kind / folder.name


def _asked(question: Callable[[], _Answer], *, about: tuple[str, str] | None = None) -> _Answer | None:
    """The remote's answer, None where something goes wrong, which is said.

    A remote that does not answer is asked nothing more, and not ``about`` what it has damaged.

    Raises:
        RemoteError: the remote does not answer or refuses, and ``[Storage] on_remote_error`` is ``fail``.
    """
    if not is_on():
        return None
    try:
        return question()
    except RemoteError as error:
        if Storage().on_remote_error == "fail":
            raise
        _given_up.add(Storage().remote)
        _logger.warning("the remote is left out, what is made here is pushed by a later run: %s", error)
    except (DamagedArtefactError, StorageError) as error:
        _logger.warning("the remote's is left: %s", printable(str(error)))
        if about and isinstance(error, DamagedArtefactError):
            _damaged.add(about)
            shutil.rmtree(root_folder() / layout.FETCHING / about[1], ignore_errors=True)
    return None


def _find(kind: str, fingerprint: str) -> "Held | None":
    if luigi.interface.core().workers == 1 or parent_process() is not None:
        return connect().find(kind, fingerprint)
    # Luigi is going to fork its workers from this process, which the library's threads would not survive.
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(_find_here, kind, fingerprint).result()


def _find_here(kind: str, fingerprint: str) -> "Held | None":
    return connect().find(kind, fingerprint)
