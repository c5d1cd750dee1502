"""Target: an artefact's folder, and how it stands to what is asked for now."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import luigi

from pipeline.artefacts.fingerprint import differences, fingerprint, printable
from pipeline.artefacts.manifest import MANIFEST_NAME, check_files, read_manifest, unreadable
from pipeline.errors import DamagedArtefactError, UnreadableArtefactError


@dataclass(frozen=True)
class Condition:
    """How an artefact stands to what is asked for: fresh, or why not.

    States are fresh, remote (the remote has it, this machine not), stale, new (nothing that was made before compares
    with it), interrupted, damaged, unreadable and pending.

    Each reason is one line, whatever it names: a file may be called as nobody would call it.
    """

    state: str
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", tuple(map(printable, self.reasons)))

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return reasons if reasons.startswith(self.state) else ": ".join(filter(None, (self.state, reasons)))


class ArtefactTarget(luigi.Target):
    """A folder with a valid manifest whose fingerprint is that of the identity asked for."""

    def __init__(self, folder: Path, identity: Mapping, *, experiment: str = "", shared: bool = False) -> None:
        """``experiment``: what the artefact belongs to; ``shared``: other files may lie beside the artefact's own."""
        self.folder, self.experiment = folder, experiment
        self.identity = identity
        self.expected = fingerprint(identity)
        self.shared = shared

    def exists(self) -> bool:
        """Whether the artefact is there, valid, and made from what was asked for."""
        return self.condition().state == "fresh"

    def condition(self) -> Condition:
        """How the artefact stands; a missing one is compared with the nearest of its experiment."""
        try:
            if not self.folder.is_dir():
                return self._against_nearest()
            manifest = read_manifest(self.folder)
            check_files(self.folder, manifest, shared=self.shared)
        except (UnreadableArtefactError, PermissionError) as error:
            error = error if isinstance(error, UnreadableArtefactError) else unreadable(self.folder)
            return Condition("unreadable", (str(error),))
        except DamagedArtefactError as error:
            return Condition("damaged", (str(error),))
        if manifest["fingerprint"] != self.expected:
            return Condition("stale", tuple(differences(manifest["identity"], self.identity)))
        return Condition("fresh")

    def _against_nearest(self) -> Condition:
        """Compare with what differs least, and of several with the newest."""
        others = []
        for path in self.folder.parent.glob(f"[!.]*/{MANIFEST_NAME}"):
            with contextlib.suppress(DamagedArtefactError):
                manifest = read_manifest(path.parent)
                # One of an earlier version does not say what it belongs to.
                if manifest.get("experiment", self.experiment) == self.experiment:
                    others.append((manifest["created_at"], differences(manifest["identity"], self.identity)))
        if not others:
            return Condition("new")
        others.sort(key=lambda other: other[0], reverse=True)
        return Condition("stale", tuple(min((found for _, found in others), key=len)))

    def manifest(self) -> dict:
        """The artefact's manifest."""
        return read_manifest(self.folder)

    def __str__(self) -> str:
        return str(self.folder)
