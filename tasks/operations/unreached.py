"""Unreached: the artefacts under the storage root that the present settings do not reach, and that nothing refers to.

What waits to be pushed to the remote stays: the log has promised it.

What a dated report was asked for stays: such a run's times cannot be measured again. Records can be written again.
"""

from collections.abc import Collection
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.artefacts.space import used_bytes
from pipeline.errors import DamagedArtefactError
from tasks import sharing
from tasks.beside import beside
from tasks.dated_reports import referred_runs
from tasks.report import dated_reports_folder
from tasks.stage import Stage
from tasks.storage import root_folder

# What earlier versions left, and no stage makes any longer.
PAST_KINDS = ("tuning",)


def unreached(stages: list[Stage], others: Collection[Path] = ()) -> dict[Path, int]:
    """Folder → bytes of every artefact and checkpoint that none of the stages would take up, but for the ``others``."""
    asked_for = beside()
    reached = {folder for stage in [*stages, *asked_for] for folder in stage.folders()}
    kept = {*reached, *others, *sharing.unpushed()}
    kinds = {folder.parent for folder in reached} - {root_folder()}
    kinds |= {root_folder() / kind for kind in (*PAST_KINDS, *(stage.kind for stage in asked_for))}
    folders = sorted(folder for kind in kinds for folder in layout.artefact_folders(kind) if _is_ours(folder))
    referred = referred_runs(dated_reports_folder())
    stale = [folder for folder in folders if folder not in kept and made_from(folder) not in referred]
    return {folder: used_bytes(folder) for folder in stale}


def made_from(folder: Path) -> str | None:
    """The fingerprint of an artefact, None where there is no valid one."""
    try:
        return read_manifest(folder)["fingerprint"]
    except DamagedArtefactError:
        return None


def _is_ours(folder: Path) -> bool:
    """Whether the pipeline made the folder; the root may hold what it did not."""
    return any(folder.glob(MANIFEST_NAME)) or any(folder.glob(f"epoch-*/{MANIFEST_NAME}"))
