"""Retention, which marks the artifacts that are still needed and sweeps the others.

Marked are artifacts that the present settings reach, that wait for the remote, the champion, runs of dated reports,
runs and checkpoints of other experiments, and all that these were made from. ``tensorcraft clean-stale`` sweeps the
others. A scheduled run also marks what ``[Storage] keep_runs`` and ``keep_days`` keep.
"""

import contextlib
import json
import logging
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.artifacts.publish import remove_artifact, used_bytes
from pipeline.errors import DamagedArtifactError
from pipeline.problems.results import merit
from pipeline.runs.determinism import determinism_path
from pipeline.runs.record import FINISHED, RunRecord, is_placeholder, names, read_record
from pipeline.settings.report import SWEPT
from tasks import remote_cache
from tasks.report import history_folder, is_past, read_dated_reports, referred_runs
from tasks.settings import Storage, root_folder
from tasks.stage import Stage
from tasks.train import Train

# Each kind comes before the kinds of its inputs.
_KINDS = (layout.CHECKPOINTS, *reversed(layout.KINDS), *layout.PAST_KINDS)
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
    """An artifact, or the checkpoints of an unfinished run."""

    folder: Path
    #: None if the artifact does not state one.
    experiment: str | None
    #: Time of the build or download, with a time zone.
    here_since: datetime
    #: Fingerprint or description of the dataset that identifies it as an input.
    provides: str | None
    #: Identifiers of its inputs.
    needs: frozenset[str]
    #: None if the artifact is not a run, or has no valid record.
    record: RunRecord | None = None

    @property
    def kind(self) -> str:
        """Name of the folder of its stage."""
        return self.folder.parent.name

    @property
    def finished_at(self) -> datetime:
        """When the run was finished."""
        return datetime.fromisoformat(self.record.finished_at)

    @property
    def merit(self) -> float:
        """Result of the run by its problem. Results on placeholder data do not count for the requested dataset."""
        record = vars(self.record)
        return -math.inf if is_placeholder(record) else merit(self.record.problem, record)


def read_artifacts(root: Path) -> list[Artifact]:
    """Every artifact under the root. Folders without a manifest are not ours."""
    folders = (folder for kind in _KINDS for folder in layout.artifact_folders(root / kind))
    return [artifact for folder in folders if (artifact := _read_artifact(folder))]


def mark(artifacts: Sequence[Artifact], roots: Collection[Path]) -> set[Path]:
    """The roots and everything that they were made from."""
    marked, needed = set(roots), set[str]()
    for artifact in artifacts:
        if artifact.folder in marked or artifact.provides in needed:
            marked.add(artifact.folder)
            needed |= artifact.needs
    return marked


def find_stale(stages: Sequence[Stage]) -> list[Path]:
    """Folders that nothing needs."""
    artifacts = read_artifacts(root_folder())
    marked = mark(artifacts, _roots(stages, artifacts, datetime.now(UTC)))
    return [artifact.folder for artifact in artifacts if artifact.folder not in marked]


def apply_limits(stages: Sequence[Stage]) -> bool:
    """Remove what is beyond the limits of a schedule. Return whether anything but a dated report was removed."""
    keep_runs, keep_days, now = Storage().keep_runs, Storage().keep_days, datetime.now(UTC)
    if not keep_runs and not keep_days:
        return False
    oldest = now - timedelta(days=keep_days)
    # The newest dated report stays.
    for report in read_dated_reports(history_folder())[:-1]:
        if is_past(report.date):
            remove(report.folder)
    artifacts = read_artifacts(root_folder())
    finished = [artifact for artifact in artifacts if artifact.record and artifact.provides]
    beyond = superfluous_runs(finished, keep_runs=keep_runs, keep_days=keep_days, now=now)
    # Checkpoints and sources are small, and useful until they are old.
    kept = (layout.CHECKPOINTS, layout.SOURCE)
    beyond |= {one.folder for one in artifacts if keep_days and one.kind in kept and one.here_since < oldest}
    roots = _roots(stages, artifacts, now)
    roots |= {one.folder for one in artifacts if one.kind in (*kept, layout.RUNS)} - beyond
    marked = mark(artifacts, roots | _exports_of(roots, artifacts))
    gone = [remove(one.folder) for one in artifacts if one.folder not in marked]
    return any(gone)


def superfluous_runs(runs: Sequence[Artifact], *, keep_runs: int, keep_days: int, now: datetime) -> set[Path]:
    """Folders of the runs beyond every limit. The best and newest of an experiment never are."""
    held, rows, beyond = set(), {}, []
    runs = sorted(runs, key=lambda run: run.finished_at, reverse=True)
    for run in runs:
        row = (run.experiment, *(getattr(run.record, name) for name in _ROW))
        rows.setdefault(row, []).append(run.folder)
    for experiment in {run.experiment for run in runs}:
        if finished := [run for run in runs if run.experiment == experiment and run.record.status == FINISHED]:
            # If several runs are equally good, the newest is the best.
            held |= {finished[0].folder, max(finished, key=lambda run: run.merit).folder}
    if keep_days:
        beyond.append({run.folder for run in runs if run.finished_at < now - timedelta(days=keep_days)})
    if keep_runs:
        beyond.append({folder for row in rows.values() for folder in row[keep_runs:]})
    return set.intersection(*beyond) - held if beyond else set()


def remove(folder: Path) -> bool:
    """Remove an artifact, and the determinism check and watched predictions of a run. Return whether it was removed."""
    size = used_bytes(folder)
    if is_gone := remove_artifact(folder):
        _logger.info("Removed %s (%.1f MB).", folder.relative_to(root_folder()), size / 1e6)
        if folder.parent.name == layout.RUNS:
            determinism_path(folder).unlink(missing_ok=True)
            shutil.rmtree(root_folder() / layout.WATCHED / folder.name, ignore_errors=True)
    return is_gone


def _roots(stages: Sequence[Stage], artifacts: Sequence[Artifact], now: datetime) -> set[Path]:
    mine, referred = _experiments_of(stages), referred_runs(root_folder() / layout.DATED_REPORTS)
    # A dangling link leads to nothing that could be kept.
    champion = Path(os.path.realpath(root_folder() / layout.CHAMPION))
    roots = {*_folders_of(stages), *remote_cache.pending(), champion}
    for one in artifacts:
        is_used = one.kind in (layout.RUNS, layout.CHECKPOINTS) or now - one.here_since < _IN_USE
        if one.provides in referred or (one.experiment not in mine and is_used):
            roots.add(one.folder)
    # Only the remote may have the present run.
    return roots | _exports_of(roots, artifacts, *(one.output().expected for one in stages if isinstance(one, Train)))


def _folders_of(stages: Sequence[Stage]) -> Iterator[Path]:
    """The folders of the current settings."""
    yield from (stage.output().folder for stage in stages)
    for train in (stage for stage in stages if isinstance(stage, Train)):
        yield train.checkpoints()
        if features := train.features():
            yield features.folder
        if train.initial and train.initial.run_folder:
            yield train.initial.run_folder


def _exports_of(folders: Collection[Path], artifacts: Sequence[Artifact], *runs: str) -> set[Path]:
    """The exports of the runs in these folders, and of runs with these fingerprints."""
    exported = {*runs, *(one.provides for one in artifacts if one.folder in folders)}
    return {one.folder for one in artifacts if one.kind == layout.EXPORTS and one.needs & exported}


def _experiments_of(stages: Sequence[Stage]) -> set[str | None]:
    return {None, *(stage.experiment_name() for stage in stages if isinstance(stage, Train))}


def _read_artifact(folder: Path) -> Artifact | None:
    manifest, record, kind = {}, None, folder.parent.name
    parts = [part for part in (folder, *sorted(folder.glob("epoch-*"))) if (part / MANIFEST_NAME).exists()]
    if not parts:
        return None
    for part in parts:
        with contextlib.suppress(DamagedArtifactError):
            manifest = read_manifest(part)
    if kind == layout.RUNS:
        try:
            record = read_record(folder)
        except DamagedArtifactError as error:
            _logger.warning("The limits do not apply to a run with an invalid record. %s", error)
    # Manifests of earlier versions do not name the experiment.
    run_of_checkpoint = _mapping(manifest.get("belongs_to"))
    about = vars(record) if record else run_of_checkpoint or manifest
    experiment, upstream = about.get("experiment"), _mapping(manifest.get("identity")).get("upstream")
    # The identity has the records of a run, even if its record is invalid.
    inputs, initial_run = _mapping(upstream), run_of_checkpoint.get("initial_run")
    needs = (_key(upstream), inputs.get("run"), inputs.get("records"), about.get("records_fingerprint"), initial_run)
    needs += (manifest.get("features"),)
    here_since = datetime.fromisoformat(manifest["created_at"]) if manifest else datetime.now(UTC)
    if fetched := read_fetched(folder):
        # A damaged note names no date, or one that cannot be compared.
        with contextlib.suppress(ValueError, TypeError):
            here_since = max(here_since, datetime.fromisoformat(fetched["fetched_at"]))
    return Artifact(
        folder=folder,
        experiment=experiment if isinstance(experiment, str) else None,
        here_since=here_since,
        provides=_key(manifest.get("source")) if kind == layout.SOURCE else manifest.get("fingerprint"),
        needs=frozenset(need for need in needs if isinstance(need, str)),
        record=record,
    )


def _key(description: object) -> str | None:
    return description and json.dumps(description, sort_keys=True)


def _mapping(data: object) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}
