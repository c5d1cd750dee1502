"""An artifact, its state, and the reasons for it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from pathlib import Path

from pipeline.artifacts.fingerprint import differences, fingerprint, printable
from pipeline.artifacts.layout import artifact_folders
from pipeline.artifacts.manifest import check_files, read_manifest, unreadable
from pipeline.errors import DamagedArtifactError, UnreadableArtifactError


class State(StrEnum):
    """How an artifact relates to what the settings, the code and the inputs require."""

    FRESH = "fresh"
    STALE = "stale"
    #: No earlier artifact is comparable.
    NEW = "new"
    DAMAGED = "damaged"
    #: It exists, but this user may not read it.
    UNREADABLE = "unreadable"
    #: Its inputs are not known yet.
    WAITING = "waiting"


# In a line of the log, and the number of changed files in a status.
MAX_REASONS = 5


@dataclass(frozen=True)
class Status:
    """State of an artifact on this machine."""

    state: State
    #: One line each, also if the name of a file has several.
    reasons: tuple[str, ...] = ()
    #: When and on which machine the copy on the remote was made. Empty if it is not needed or there is none.
    remote: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", tuple(map(printable, self.reasons)))

    def __str__(self) -> str:
        between = " " if self.state is State.WAITING else ": "
        reasons = list(self.reasons[: MAX_REASONS + 1])
        # One more would take the place of the last reason, which may be a number of files.
        if len(self.reasons) > MAX_REASONS + 1:
            reasons[MAX_REASONS:] = [f"and {len(self.reasons) - MAX_REASONS} more, see tensorcraft status"]
        return between.join([self.state, "; ".join(reasons)]) if reasons else self.state

    @property
    def is_fresh(self) -> bool:
        """Whether the artifact is here and valid."""
        return self.state is State.FRESH

    @property
    def is_available(self) -> bool:
        """Whether the artifact is fresh here, or on the remote."""
        return self.is_fresh or bool(self.remote)


@dataclass(frozen=True, eq=False)
class Artifact:
    """The artifact that an identity requires, whether it exists or not."""

    folder: Path
    identity: Mapping
    #: An artifact that does not exist is compared with others of the same experiment.
    experiment: str = ""
    #: Whether files of other people may be in the folder.
    shared: bool = False

    @property
    def expected(self) -> str:
        """The fingerprint of the identity."""
        return fingerprint(self.identity)

    def name(self) -> str:
        """The path below the storage root, for messages."""
        return self.folder.name if self.shared else f"{self.folder.parent.name}/{self.folder.name}"

    def manifest(self) -> dict:
        """The artifact's manifest, see ``read_manifest``."""
        return read_manifest(self.folder)

    def status(self) -> Status:
        """State of the files, compared with the identity."""
        try:
            if not self.folder.is_dir():
                return self._compare_with_nearest()
            manifest = self.manifest()
            check_files(self.folder, manifest, shared=self.shared)
        except UnreadableArtifactError as error:
            return Status(State.UNREADABLE, (str(error),))
        except PermissionError:
            return Status(State.UNREADABLE, (str(unreadable(self.folder)),))
        except DamagedArtifactError as error:
            return Status(State.DAMAGED, (error.args[0].rstrip("."),))
        if manifest["fingerprint"] != self.expected:
            return Status(State.STALE, tuple(differences(manifest["identity"], self.identity)))
        return Status(State.FRESH)

    def _compare_with_nearest(self) -> Status:
        """Compare with the artifact that differs least. Prefer the same inputs, then the newest."""
        others = []
        for folder, manifest in manifests_in(self.folder.parent):
            # Earlier versions wrote no experiment.
            if manifest.get("experiment", self.experiment) == self.experiment:
                identity = manifest["identity"]
                changes = differences(identity, self.identity)
                has_inputs = identity.get("upstream") == self.identity.get("upstream")
                others.append(((-len(changes), has_inputs, manifest["created_at"]), changes, folder))
        if not others:
            return Status(State.NEW)
        _, changes, folder = max(others, key=itemgetter(0))
        compared = [f"compared with {folder.parent.name}/{folder.name}"] if len(others) > 1 else []
        return Status(State.STALE, (*changes, *compared))

    def __str__(self) -> str:
        return str(self.folder)


def manifests_in(folder: Path) -> Iterator[tuple[Path, dict]]:
    """Folder and manifest of each artifact in the folder of a kind. Damaged ones are left out."""
    for path in artifact_folders(folder):
        with contextlib.suppress(DamagedArtifactError):
            yield path, read_manifest(path)
