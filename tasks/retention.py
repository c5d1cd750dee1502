"""Retention: mark the artifacts that are still needed, and sweep the others.

Marked are artifacts that the present settings reach, that wait for the remote, runs of dated reports, runs and
checkpoints of other experiments, and all that these were made from. ``make clean-stale`` sweeps the others. A scheduled
run also marks what ``[Storage] keep_runs`` and ``keep_days`` keep.
"""

import contextlib
import json
import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.artefacts.publish import remove_artefact
from pipeline.artefacts.space import used_bytes
from pipeline.config.report import SWEPT
from pipeline.errors import DamagedArtefactError
from pipeline.problems.judged import merit
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.runs.determinism import determinism_path
from pipeline.runs.record import RECORD_NAME, is_stand_in, names
from tasks import remote_cache
from tasks.dated_reports import DatedReport, is_past, read_dated_reports, referred_runs
from tasks.export import Export
from tasks.report import dated_reports_folder, history_folder
from tasks.stage import Stage
from tasks.storage import Storage, root_folder
from tasks.train import Train

#: Kinds of earlier versions, which no stage makes any more.
PAST_KINDS = ("repetitions", "tuning")
# Each kind stands before those that its artifacts were made from.
_KINDS = (layout.EXPORTS, layout.CHECKPOINTS, layout.RUNS, layout.RECORDS, layout.SOURCE)
# The next stage of another experiment may be about to use an artifact of this age.
_IN_USE = timedelta(days=1)
# A row has the runs of one model that agree in what a sweep varies, except the seed.
_ROW = (
    "model",
    *(name for name in names("setting") if name != "seed" and name.removeprefix("requested_") in SWEPT.values()),
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact, or the checkpoints of an unfinished run.

    Attributes:
        folder: of the artifact.
        experiment: its name. None if the artifact does not state one.
        here_since: when it was made, or fetched, with a time zone.
        provides: fingerprint, or description of the dataset, by which others name it as their input.
        needs: what its inputs provide.
    """

    folder: Path
    experiment: str | None
    here_since: datetime
    provides: str | None
    needs: frozenset[str]

    @property
    def kind(self) -> str:
        """Name of the folder of its stage."""
        return self.folder.parent.name


@dataclass(frozen=True)
class Run:
    """Data of a run that decide whether the limits keep it."""

    folder: Path
    experiment: str
    row: tuple[str, ...]
    finished_at: datetime
    is_finished: bool
    merit: float


def read_artifacts(root: Path) -> list[Artifact]:
    """Every artifact under the root. Folders without a manifest are not ours."""
    folders = (folder for kind in (*_KINDS, *PAST_KINDS) for folder in layout.artefact_folders(root / kind))
    return [artifact for folder in folders if (artifact := _read_artifact(folder))]


def mark(artifacts: Sequence[Artifact], roots: Collection[Path]) -> set[Path]:
    """The roots and everything that they were made from."""
    marked, needed = set(roots), set[str]()
    for artifact in artifacts:
        if artifact.folder in marked or artifact.provides in needed:
            marked.add(artifact.folder)
            needed |= artifact.needs
    return marked


def find_stale(stages: Sequence[Stage]) -> tuple[list[Path], list[str]]:
    """Folders that nothing needs, and the names of the other experiments under the root."""
    artifacts = read_artifacts(root_folder())
    marked = mark(artifacts, _roots(stages, artifacts, datetime.now(UTC)))
    mine = _experiments_of(stages)
    others = {one.experiment for one in artifacts if one.kind in (layout.RUNS, layout.CHECKPOINTS)} - mine
    return [artifact.folder for artifact in artifacts if artifact.folder not in marked], sorted(others)


def apply_limits(stages: Sequence[Stage]) -> bool:
    """Remove what is beyond the limits of a schedule. Return whether anything but a dated report was removed.

    Args:
        stages: those of the present settings, all complete.
    """
    keep_runs, keep_days = Storage().keep_runs, Storage().keep_days
    if not keep_runs and not keep_days:
        return False
    now = datetime.now(UTC)
    too_old = f"older than {keep_days} days"
    for report in superfluous_reports(read_dated_reports(history_folder())[0], keep_days=keep_days, today=now.date()):
        remove(report.folder, too_old)
    artifacts = read_artifacts(root_folder())
    beyond = superfluous_runs(read_runs(root_folder() / Train.kind), keep_runs=keep_runs, keep_days=keep_days, now=now)
    roots = _roots(stages, artifacts, now)
    kept = [run for run in artifacts if run.kind == layout.RUNS and (run.folder not in beyond or run.folder in roots)]
    roots |= {run.folder for run in kept} | _made_of(kept, artifacts)
    for artifact in artifacts:
        # They are small, and useful until they are old.
        if artifact.kind in (layout.CHECKPOINTS, layout.SOURCE):
            if _is_older(artifact.here_since, keep_days, now):
                beyond[artifact.folder] = too_old
            else:
                roots.add(artifact.folder)
    marked = mark(artifacts, roots)
    going = [artifact.folder for artifact in artifacts if artifact.folder not in marked]
    are_gone = [remove(folder, beyond.get(folder, "no run that is kept needs it")) for folder in going]
    return any(are_gone)


def read_runs(folder: Path) -> list[Run]:
    """The runs whose record can be read. The others are kept.

    A date without a time zone cannot be compared with other dates, so such a run is kept too.
    """
    runs = []
    for path in layout.artefact_folders(folder):
        try:
            record = json.loads((path / RECORD_NAME).read_bytes())
            finished_at = datetime.fromisoformat(record["finished_at"])
            if finished_at.tzinfo is None:
                raise ValueError(f"finished_at: expected a date with its time zone, got {record['finished_at']!r}")
            run = Run(
                folder=path,
                experiment=_experiment_of(record),
                row=tuple(str(record.get(name)) for name in _ROW),
                finished_at=finished_at,
                is_finished=record.get("status", "finished") == "finished",
                # Generated examples say nothing about the requested dataset.
                merit=-math.inf if is_stand_in(record) else merit(record.get("problem", IMAGE_CLASSIFICATION), record),
            )
            read_manifest(path)
        except (FileNotFoundError, NotADirectoryError, DamagedArtefactError):
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            _logger.warning("%s: kept, and left out of retention: %r", path / RECORD_NAME, error)
            continue
        runs.append(run)
    return runs


def superfluous_runs(runs: Sequence[Run], *, keep_runs: int, keep_days: int, now: datetime) -> dict[Path, str]:
    """Folder → reason for the runs that are beyond every limit.

    The best run of each experiment and its newest finished run are never beyond them.

    Args:
        runs: all runs.
        keep_runs: number of the newest runs to keep of each row. 0 means no such limit.
        keep_days: age in days up to which runs are kept. 0 means no such limit.
        now: with a time zone.
    """
    newest_first = sorted(runs, key=lambda run: run.finished_at, reverse=True)
    finished = [run for run in newest_first if run.is_finished]
    held = set()
    for experiment in {run.experiment for run in finished}:
        mine = [run for run in finished if run.experiment == experiment]
        held |= {mine[0].folder, max(mine, key=lambda run: run.merit).folder}
    beyond = {}
    if keep_days:
        old = {run.folder for run in runs if _is_older(run.finished_at, keep_days, now)}
        beyond[f"older than {keep_days} days"] = old
    if keep_runs:
        rows: dict[object, list[Path]] = {}
        for run in newest_first:
            rows.setdefault((run.experiment, run.row), []).append(run.folder)
        beyond[f"there are {keep_runs} newer ones like it"] = {
            folder for row in rows.values() for folder in row[keep_runs:]
        }
    going = set.intersection(*beyond.values()) - held if beyond else set()
    return dict.fromkeys(sorted(going), ", ".join(beyond))


def superfluous_reports(reports: Sequence[DatedReport], *, keep_days: int, today: date) -> list[DatedReport]:
    """The dated reports beyond the limit. The newest one is kept."""
    newest = max((report.date for report in reports), default=None)
    return [report for report in reports if report.date != newest and is_past(report.date, keep_days, today)]


def _roots(stages: Sequence[Stage], artifacts: Sequence[Artifact], now: datetime) -> set[Path]:
    mine, referred = _experiments_of(stages), referred_runs(dated_reports_folder())
    others = [artifact for artifact in artifacts if artifact.experiment not in mine]
    unfinished = {one.folder for one in others if one.kind == layout.CHECKPOINTS or now - one.here_since < _IN_USE}
    runs = [one for one in others if one.kind == layout.RUNS]
    return {
        *(folder for stage in (*stages, Export()) for folder in stage.folders()),
        *remote_cache.pending(),
        *(one.folder for one in artifacts if one.provides in referred),
        *unfinished,
        *(run.folder for run in runs),
        *_made_of(runs, artifacts),
    }


def _made_of(runs: Sequence[Artifact], artifacts: Sequence[Artifact]) -> set[Path]:
    """The exports of these runs."""
    provided = {run.provides for run in runs}
    return {one.folder for one in artifacts if one.kind == layout.EXPORTS and one.needs & provided}


def _experiments_of(stages: Sequence[Stage]) -> set[str | None]:
    return {None, *(stage.belongs_to() for stage in stages if isinstance(stage, Train))}


def _read_artifact(folder: Path) -> Artifact | None:
    places = [folder, *sorted(folder.glob("epoch-*"))]
    if not any((place / MANIFEST_NAME).exists() for place in places):
        return None
    manifest: dict = {}
    for place in places:
        with contextlib.suppress(DamagedArtefactError):
            manifest = read_manifest(place)
    upstream = _part(manifest, "identity", "upstream")
    about, provides = manifest, manifest.get("fingerprint")
    match folder.parent.name:
        case layout.SOURCE:
            provides, needs = _key(manifest.get("source")), []
        case layout.RECORDS:
            needs = [_key(upstream)]
        case layout.RUNS:
            # Manifests of earlier versions do not name the experiment.
            about = _read_record(folder)
            needs = [about.get("records_fingerprint")]
        case layout.CHECKPOINTS:
            about, provides = _part(manifest, "belongs_to"), None
            needs = [_part(about, "records_fingerprint"), _part(about, "initial_run")]
        case _:
            provides, needs = None, [_part(upstream, "run")]
    experiment = _part(about, "experiment")
    return Artifact(
        folder=folder,
        experiment=experiment if isinstance(experiment, str) else None,
        here_since=_here_since(folder, manifest.get("created_at")),
        provides=provides,
        needs=frozenset(need for need in needs if isinstance(need, str)),
    )


def _here_since(folder: Path, created_at: str | None) -> datetime:
    """When it was made; if it was fetched after that, when that was."""
    made = datetime.fromisoformat(created_at) if created_at else datetime.now(UTC)
    if fetched := read_fetched(folder):
        # A damaged note names no date, or one that cannot be compared.
        with contextlib.suppress(ValueError, TypeError):
            return max(made, datetime.fromisoformat(fetched["fetched_at"]))
    return made


def _read_record(folder: Path) -> dict:
    try:
        record = json.loads((folder / RECORD_NAME).read_bytes())
        return {"experiment": _experiment_of(record), "records_fingerprint": record.get("records_fingerprint")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _experiment_of(record: dict) -> str:
    # Records of earlier versions name no experiment.
    return str(record.get("experiment") or record.get("requested_dataset") or record["dataset"])


def _key(description: object) -> str | None:
    return description and json.dumps(description, sort_keys=True)


def _part(data: Any, *path: str) -> Any:
    """A value inside nested objects. None if there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _is_older(moment: datetime, keep_days: int, now: datetime) -> bool:
    return bool(keep_days) and moment < now - timedelta(days=keep_days)


def remove(folder: Path, reason: str) -> bool:
    """Remove an artifact, and the result of training it again. Return whether it is gone."""
    size = used_bytes(folder)
    if is_gone := remove_artefact(folder):
        _logger.info("removed %s, %.1f MB: %s", folder.relative_to(root_folder()), size / 1e6, reason)
        if folder.parent.name == layout.RUNS:
            determinism_path(folder).unlink(missing_ok=True)
    return is_gone
