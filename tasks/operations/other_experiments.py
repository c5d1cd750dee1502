"""Other experiments: what of a storage root belongs to experiments beside the present one.

``make clean-stale`` removes what the present settings do not reach; several experiments may share a root, and what is
another's stays. A run says to which it belongs: it stays, and with it the records it was trained on, their source and
its exports, whatever settings it was made with. What the settings files in ``experiments/`` reach stays besides, even
of the same experiment; each file is asked in a process of its own, for Luigi has one configuration in a process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.config import OF_FILES, experiment_files, settings_in
from pipeline.errors import DamagedArtefactError, StorageError
from tasks import experiment
from tasks.stage import Stage
from tasks.storage import PROJECT_FOLDER, root_folder
from tasks.train import Train


def of_other_experiments(stages: Sequence[Stage]) -> tuple[set[Path], list[str]]:
    """The folders that belong to others than the experiment of the stages, and the names of those that have runs.

    Raises:
        StorageError: what an experiment's settings reach could not be found out: nothing may be removed then.
    """
    mine = {stage.belongs_to() for stage in stages if isinstance(stage, Train)}
    runs = {
        folder: facts for folder in _artefacts(layout.RUNS) if (facts := _run_facts(folder)) and facts[0] not in mine
    }
    trained_on = {records for _, records, _ in runs.values()}
    fingerprints = {fingerprint for _, _, fingerprint in runs.values()}
    records = {folder for folder in _artefacts(layout.RECORDS) if _of_manifest(folder, "fingerprint") in trained_on}
    read = [_of_manifest(folder, "identity", "upstream") for folder in records]
    sources = {folder for folder in _artefacts(layout.SOURCE) if _of_manifest(folder, "source") in read}
    exports = {
        folder
        for folder in _artefacts(layout.EXPORTS)
        if _of_manifest(folder, "identity", "upstream", "run") in fingerprints
    }
    return {*runs, *records, *sources, *exports, *_reached_by_files()}, sorted({name for name, _, _ in runs.values()})


def _artefacts(kind: str) -> list[Path]:
    return sorted((root_folder() / kind).glob("[!.]*"))


def _run_facts(run: Path) -> tuple[str, str | None, str] | None:
    """A run's experiment, records and fingerprint; None where it cannot be read."""
    from pipeline.runs.record import read_record

    try:
        record = read_record(run)
    except DamagedArtefactError:
        return None
    return record.experiment, record.records_fingerprint, record.fingerprint


def _of_manifest(folder: Path, *names: str) -> object:
    """What an artefact's manifest has under these names, each in the one before; None where it has nothing there."""
    try:
        found = read_manifest(folder)
    except DamagedArtefactError:
        return None
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _reached_by_files() -> set[Path]:
    files = experiment_files(experiment.FOLDER).items()
    names = [name for name, path in files if name != experiment.asked_for() and _may_reach(path)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return set().union(*pool.map(_reached_by_file, names))


def _may_reach(path: Path) -> bool:
    """Whether the root has anything of a file's dataset; where that is a folder, its name is not known here."""
    dataset = settings_in([PROJECT_FOLDER / "config.ini", path])["Source"]["dataset"]
    names = (folder.name.rpartition("-")[0] for folder in _artefacts(layout.SOURCE))
    return dataset in OF_FILES or dataset.replace("/", "-") in names


def _reached_by_file(name: str) -> set[Path]:
    command = [sys.executable, "-m", "tasks.commands.reached", f"--Storage-root={root_folder()}"]
    environment = {**os.environ, experiment.VARIABLE: name}
    # One of them, named so instead of by make, would override the one that is asked.
    if Path(environment.get("LUIGI_CONFIG_PATH", "")).resolve().parent == experiment.FOLDER:
        del environment["LUIGI_CONFIG_PATH"]
    done = subprocess.run(command, env=environment, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise StorageError(f"what EXPERIMENT={name} reaches could not be found out, so nothing is removed: {said}")
    return {Path(folder) for folder in json.loads(done.stdout)}
