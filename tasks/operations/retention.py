"""Retention: removes what a schedule need not keep any longer, by ``[Storage] keep_runs`` and ``keep_days``.

Asked by Nightly alone: who runs the pipeline by hand removes by hand (``make clean-stale``). What the present settings
reach stays, as do the runs that a report is about, the records that a run which stays was trained on, and its exports.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.artefacts.manifest import read_manifest, remove_artefact
from pipeline.errors import DamagedArtefactError
from tasks.export import Export
from tasks.operations.dated_reports import read_dated_reports, referred_runs
from tasks.operations.limits import is_older, read_runs, superfluous_reports, superfluous_runs
from tasks.operations.unreached import PAST_KINDS, made_from, size_bytes, unreached
from tasks.records import Records
from tasks.report import dated_reports_folder, history_folder
from tasks.stage import Stage
from tasks.storage import Storage, root_folder
from tasks.train import Train

_logger = logging.getLogger(__name__)


def apply(stages: Sequence[Stage]) -> bool:
    """Remove what is beyond the limits; whether anything was.

    Args:
        stages: those of the present settings, all complete.
    """
    limits = {"keep_runs": Storage().keep_runs, "keep_days": Storage().keep_days}
    if not any(limits.values()):
        return False
    now = datetime.now(UTC)
    reports, _ = read_dated_reports(history_folder())
    past = superfluous_reports(reports, keep_days=limits["keep_days"], today=now.date())
    for report in past:
        _remove(report.folder, f"older than {limits['keep_days']} days")
    superfluous = _superfluous(stages, limits, now)
    for folder, reason in superfluous.items():
        _remove(folder, reason)
    return bool(superfluous)


def _superfluous(stages: Sequence[Stage], limits: dict[str, int], now: datetime) -> dict[Path, str]:
    runs = read_runs(root_folder() / Train.kind)
    reached = {stage.output().expected for stage in stages}
    going = superfluous_runs(runs, needed=referred_runs(dated_reports_folder()) | reached, **limits, now=now)
    kept = [run for run in runs if run.folder not in going]
    trained_on, exported = {run.records for run in kept}, {run.fingerprint for run in kept}
    reasons = {}
    for folder in unreached(stages):
        kind = folder.parent.name
        if kind == Train.kind:
            if folder in going:
                reasons[folder] = going[folder]
        elif kind == Records.kind:
            if made_from(folder) not in trained_on:
                reasons[folder] = "no run that is kept was trained on it"
        elif kind == Export.kind:
            if _run_of(folder) not in exported:
                reasons[folder] = "the run it was made from is not kept"
        elif kind in PAST_KINDS:
            reasons[folder] = "of an earlier version, which made such"
        # A source's manifest, or a checkpoint to resume from: small, and of use until it is old.
        elif is_older(_newest(folder, now), limits["keep_days"], now):
            reasons[folder] = f"older than {limits['keep_days']} days"
    return reasons


def _run_of(export: Path) -> str | None:
    """Fingerprint of the run that was exported; None where there is no valid manifest."""
    try:
        return read_manifest(export)["identity"]["upstream"]["run"]
    except (DamagedArtefactError, KeyError, TypeError):
        return None


def _newest(folder: Path, now: datetime) -> datetime:
    """When the artefact, or the newest of a folder of them, was made; now for what cannot be read."""
    places = [folder, *folder.glob("epoch-*")]
    made = [read_manifest(place)["created_at"] for place in places if made_from(place)]
    return max(map(datetime.fromisoformat, made), default=now)


def _remove(folder: Path, reason: str) -> None:
    size = size_bytes(folder)
    if remove_artefact(folder):
        _logger.info("removed %s, %.1f MB: %s", folder.relative_to(root_folder()), size / 1e6, reason)
