"""Retention: removes what a schedule need not keep any longer, by ``[Storage] keep_runs`` and ``keep_days``.

Asked by Nightly alone: who runs the pipeline by hand removes by hand (``make clean-stale``). Of what clean-stale would
remove it takes what is beyond the limits: what the present settings reach stays, and so does all that belongs to other
experiments, which have schedules of their own. The runs that a report is about stay besides, and what is needed by the
runs and checkpoints that stay: the records they are trained on, with their source, exports and repetitions.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.artefacts.publish import remove_artefact
from pipeline.artefacts.space import used_bytes
from pipeline.errors import StorageError
from tasks.beside import BESIDE
from tasks.dated_reports import read_dated_reports, referred_runs
from tasks.operations.belongings import belongings, trainings
from tasks.operations.limits import is_older, read_runs, superfluous_reports, superfluous_runs
from tasks.operations.other_experiments import of_other_experiments
from tasks.operations.unreached import PAST_KINDS, made_from, unreached
from tasks.records import Records
from tasks.report import dated_reports_folder, history_folder
from tasks.stage import Stage
from tasks.storage import Storage, root_folder
from tasks.train import Train

_logger = logging.getLogger(__name__)

_NOT_NEEDED = {
    Records.kind: "no run that is kept was trained on it",
    **{stage.kind: "the run it was made from is not kept" for stage in BESIDE},
}


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
    # Asking the other experiments takes seconds, and on most dates nothing is beyond the limits.
    if not _beyond(stages, unreached(stages), limits, now):
        return {}
    try:
        return _beyond(stages, unreached(stages, of_other_experiments(stages)[0]), limits, now)
    except StorageError as error:
        # The settings of another are no reason for this one to fail.
        _logger.warning("%s", error)
        return {}


def _beyond(stages: Sequence[Stage], stale: Collection[Path], limits: dict[str, int], now: datetime) -> dict[Path, str]:
    """Of the ``stale`` folders those beyond the limits, and why each is."""
    reached = {stage.output().expected for stage in stages}
    needed = referred_runs(dated_reports_folder()) | reached
    beyond = superfluous_runs(read_runs(root_folder() / Train.kind), needed=needed, **limits, now=now)
    going = {folder: beyond[folder] for folder in stale if folder in beyond}
    going |= {folder: "of an earlier version, which made such" for folder in stale if folder.parent.name in PAST_KINDS}
    # Small, and of use until it is old.
    for folder in (folder for folder in stale if folder.parent.name in (layout.CHECKPOINTS, layout.SOURCE)):
        if is_older(_newest(folder, now), limits["keep_days"], now):
            going[folder] = f"older than {limits['keep_days']} days"
    staying = belongings([training for training in trainings() if training.folder not in going])
    going |= {folder: _NOT_NEEDED[kind] for folder in stale if (kind := folder.parent.name) in _NOT_NEEDED}
    return {folder: reason for folder, reason in going.items() if folder not in staying}


def _newest(folder: Path, now: datetime) -> datetime:
    """When the artefact, or the newest of a folder of them, was made; now for what cannot be read."""
    places = [folder, *folder.glob("epoch-*")]
    made = [read_manifest(place)["created_at"] for place in places if made_from(place)]
    return max(map(datetime.fromisoformat, made), default=now)


def _remove(folder: Path, reason: str) -> None:
    size = used_bytes(folder)
    if remove_artefact(folder):
        _logger.info("removed %s, %.1f MB: %s", folder.relative_to(root_folder()), size / 1e6, reason)
