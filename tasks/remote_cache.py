"""Downloads artifacts from the remote and uploads those built here ([Storage] remote).

A remote that does not answer ends no run. The error is logged once, the work goes on here, and a later run uploads what
could not be uploaded. With ``[Storage] on_remote_error = fail`` the run ends instead.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

import luigi.interface

from pipeline.artifacts import layout
from pipeline.artifacts.fingerprint import printable
from pipeline.artifacts.manifest import read_fetched, read_manifest
from pipeline.errors import DamagedArtifactError, RemoteError, StorageError, UnreadableArtifactError, refuse
from tasks.settings import Storage, root_folder

if TYPE_CHECKING:
    from pipeline.remote.artifacts import Pushed, Remote, StoredArtifact

_logger = logging.getLogger(__name__)


class RemoteCache:
    """The artifacts of a team on an object store."""

    def __init__(self, *, strict: bool = False) -> None:
        """If ``strict``, every error ends the process."""
        self._storage, self._root, self._is_strict = Storage(), root_folder(), strict
        #: Whether it has answered so far.
        self.is_on = True
        # By kind and fingerprint; None: the remote does not have it.
        self._cached: dict[tuple[str, str], StoredArtifact | None] = {}
        self._damaged: set[tuple[str, str]] = set()

    @cached_property
    def remote(self) -> "Remote":
        """The remote itself. It raises errors."""
        # The import takes a tenth of a second.
        from pipeline.remote.artifacts import Remote
        from pipeline.remote.objects import Objects

        return Remote(Objects(self._storage.remote, endpoint=self._storage.remote_endpoint))

    def find(self, kind: str, fingerprint: str) -> "StoredArtifact | None":
        """Look an artifact up, once per process. None if the remote does not have it or does not answer."""
        key = (kind, fingerprint)
        if not self.is_on or key in self._damaged:
            return None
        if key not in self._cached:
            self._cached[key] = None
            with self._tolerating_errors(key):
                if luigi.interface.core().workers == 1 or parent_process() is not None:
                    self._cached[key] = self.remote.find(kind, fingerprint)
                else:
                    from concurrent.futures import ProcessPoolExecutor

                    # Luigi forks its workers from this process. The threads of the library would not survive that.
                    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
                        self._cached[key] = pool.submit(_find_in_child, kind, fingerprint).result()
        return self._cached[key]

    def get(self, kind: str, fingerprint: str, folder: Path) -> bool:
        """Download an artifact. Return whether it is in the folder now."""
        if stored := self.find(kind, fingerprint):
            stage, origin = stored.manifest["stage"], origin_of(stored.manifest)
            _logger.info("%s: downloading %s/%s, %s", stage, kind, folder.name, origin)
            with self._tolerating_errors((kind, fingerprint)):
                self.remote.fetch(kind, stored, folder, root=self._root)
                return True
        return False

    def put(self, kind: str, folder: Path, *, replace: bool = False, keep: bool = False) -> "Pushed | None":
        """Upload an artifact. Return None if the remote does not answer, and note the artifact for a later run.

        ``replace`` an earlier copy on the remote. If the remote has another one, it is downloaded, unless ``keep``.
        """
        from pipeline.remote.artifacts import Pushed

        fingerprint = read_manifest(folder)["fingerprint"]
        key, marker = (kind, fingerprint), self._root / layout.UNPUSHED / kind / folder.name
        # The artifact is complete even if the disk is full now.
        with contextlib.suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.write_text("replace" if replace else "", encoding="utf-8")
        if not self.is_on:
            return None
        with self._tolerating_errors():
            outcome = self.remote.push(kind, folder, replace=replace, mend=key in self._damaged)
            self._damaged.discard(key)
            marker.unlink(missing_ok=True)
            self._cached.pop(key, None)
            if outcome is Pushed.NEW:
                _logger.info("Pushed %s/%s to %s.", kind, folder.name, self._storage.remote)
                # An interrupted download of the same artifact.
                shutil.rmtree(self._root / layout.FETCHING / fingerprint, ignore_errors=True)
            elif outcome is Pushed.CONFLICT and (keep or replace):
                _logger.warning("Keeping %s/%s. The remote already has another copy of it.", kind, folder.name)
            elif outcome is Pushed.CONFLICT:
                _logger.warning("Using the copy of %s/%s that is already on the remote.", kind, folder.name)
                self.get(kind, fingerprint, folder)
            return outcome
        return None

    @contextlib.contextmanager
    def _tolerating_errors(self, about: tuple[str, str] | None = None) -> Iterator[None]:
        """Log an error instead of raising it. A remote that fails is off, and a damaged artifact is not used."""
        try:
            yield
        except RemoteError as error:
            if self._is_strict or self._storage.on_remote_error == "fail":
                raise
            self.is_on = False
            _logger.warning("Continuing without the remote. A later run pushes the new artifacts. Cause: %s", error)
        except (DamagedArtifactError, StorageError) as error:
            if self._is_strict:
                raise
            _logger.warning("Ignoring the copy on the remote. %s", printable(str(error)))
            if about and isinstance(error, DamagedArtifactError):
                self._damaged.add(about)
                shutil.rmtree(self._root / layout.FETCHING / about[1], ignore_errors=True)


@cache
def shared() -> RemoteCache | None:
    """The cache of this process; None if there is no [Storage] remote."""
    return RemoteCache() if Storage().remote else None


def required() -> RemoteCache:
    """The cache of a command that needs the remote. Every error ends the process."""
    if not Storage().remote:
        refuse("Storage", "remote", "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix", "")
    return RemoteCache(strict=True)


def pending() -> dict[Path, Path]:
    """Folder of each artifact that earlier runs could not upload → the file that notes it."""
    root = root_folder()
    return {root / path.parent.name / path.name: path for path in sorted((root / layout.UNPUSHED).glob("*/*"))}


def put_pending() -> None:
    """Upload what earlier runs could not. Nothing here is replaced."""
    if not (cache := shared()) or Storage().push == "never":
        return
    for folder, marker in pending().items():
        try:
            manifest = read_manifest(folder)
        except UnreadableArtifactError:
            # It may be readable later.
            continue
        except DamagedArtifactError:
            manifest = None
        # A download may have replaced the artifact that was made here.
        if not manifest or read_fetched(folder):
            marker.unlink(missing_ok=True)
        elif not is_provisional(folder):
            cache.put(marker.parent.name, folder, replace=marker.read_text(encoding="utf-8") == "replace", keep=True)


def origin_of(manifest: Mapping) -> str:
    """Machine and time of a build."""
    return printable(f"built on {manifest.get('host', 'another machine')} at {manifest['created_at']}")


def is_provisional(folder: Path) -> bool:
    """Whether an artifact is not final, or was made on another device than the requested one."""
    with contextlib.suppress(DamagedArtifactError):
        return not read_manifest(folder).keys().isdisjoint(("provisional", "fallback"))
    return False


def _find_in_child(kind: str, fingerprint: str) -> "StoredArtifact | None":
    return RemoteCache().remote.find(kind, fingerprint)
