"""Belongings: whose a run or a waiting checkpoint is, and what of the storage root must stay as long as it does.

The one place that says so: ``make clean-stale`` asks it what belongs to other experiments, retention besides what the
runs and checkpoints need that it keeps. A run says in its record to which experiment it belongs and which records it
was trained on, a checkpoint in its manifest. Little of them is read: what no report can show, of a later version say,
has its belongings all the same.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.runs.record import RECORD_NAME
from tasks.operations.limits import experiment_of
from tasks.storage import root_folder


@dataclass(frozen=True)
class Training:
    """A run, or the checkpoints that an interrupted one resumes from.

    Attributes:
        folder: where it lies.
        experiment: to which it belongs.
        run: fingerprint of the run.
        records: fingerprint of the records it is trained on; None where that is not known.
        begins_with: of a checkpoint: fingerprint of the run whose weights it began with, without which its settings
            are refused; None: of no run.
    """

    folder: Path
    experiment: str
    run: str | None
    records: str | None
    begins_with: str | None = None


def trainings() -> list[Training]:
    """Every run and every interrupted one under the root of which it can be told whose it is."""
    runs, checkpoints = map(_artefacts, (layout.RUNS, layout.CHECKPOINTS))
    return [found for found in (*map(_of_run, runs), *map(_of_checkpoints, checkpoints)) if found]


def belongings(of: Collection[Training]) -> set[Path]:
    """Their folders, records with their sources, exports, repetitions, and the runs they begin with."""
    trained_on = {one.records for one in of} - {None}
    fingerprints = {one.run for one in of} - {None}
    begun_with = {one.begins_with for one in of} - {None}
    records = {folder for folder in _artefacts(layout.RECORDS) if _of_manifest(folder, "fingerprint") in trained_on}
    read = [_of_manifest(folder, "identity", "upstream") for folder in records]
    return {
        *(one.folder for one in of),
        *records,
        *(folder for folder in _artefacts(layout.SOURCE) if _of_manifest(folder, "source") in read),
        *(
            folder
            for kind in (layout.EXPORTS, layout.REPETITIONS)
            for folder in _artefacts(kind)
            if _of_manifest(folder, "identity", "upstream", "run") in fingerprints
        ),
        *(folder for folder in _artefacts(layout.RUNS) if _of_manifest(folder, "fingerprint") in begun_with),
    }


def _artefacts(kind: str) -> list[Path]:
    return layout.artefact_folders(root_folder() / kind)


def _of_run(folder: Path) -> Training | None:
    try:
        record = json.loads((folder / RECORD_NAME).read_bytes())
        experiment, fingerprint = experiment_of(record), record["fingerprint"]
        records = record.get("records_fingerprint")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Training(folder, experiment, _of_manifest(folder, "fingerprint") or _text(fingerprint), _text(records))


def _of_checkpoints(folder: Path) -> Training | None:
    # One, or two where the process was killed between the two: of the same run.
    for checkpoint in sorted(folder.glob("epoch-*"), reverse=True):
        experiment, records, begins_with = (
            _text(_of_manifest(checkpoint, "belongs_to", name))
            for name in ("experiment", "records_fingerprint", "initial_run")
        )
        if experiment:
            run = _text(_of_manifest(checkpoint, "identity", "run"))
            return Training(folder, experiment, run, records, begins_with)
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _of_manifest(folder: Path, *names: str) -> object:
    """What an artefact's manifest has under these names, each in the one before; None where it has nothing there."""
    try:
        found = read_manifest(folder)
    except DamagedArtefactError:
        return None
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found
