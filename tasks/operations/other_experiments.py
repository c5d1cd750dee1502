"""Other experiments: what of a storage root belongs to experiments beside the present one.

``make clean-stale`` removes what the present settings do not reach, and so does the retention of a schedule; several
experiments may share a root, and what is another's stays, for its own commands and schedule to remove. A run or a
checkpoint says to which it belongs (see belongings.py): it stays with all it needs, whatever settings it was made with.
What the settings files in ``experiments/``, or config.ini alone, reach stays besides, even of the same experiment; each
is asked in a process of its own, for Luigi has one configuration in a process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.config.data import OF_FILES
from pipeline.config.experiment import experiment_files, settings_in
from pipeline.errors import StorageError
from tasks import config_files
from tasks.operations.belongings import belongings, trainings
from tasks.stage import Stage
from tasks.storage import PROJECT_FOLDER, root_folder
from tasks.train import Train

_CONFIG = PROJECT_FOLDER / "config.ini"


def of_other_experiments(stages: Sequence[Stage]) -> tuple[set[Path], list[str]]:
    """The folders that belong to others than the experiment of the stages, and the names of those that trained any.

    Raises:
        StorageError: what an experiment's settings reach could not be found out: nothing may be removed then.
    """
    mine = {stage.belongs_to() for stage in stages if isinstance(stage, Train)}
    others = [training for training in trainings() if training.experiment not in mine]
    return belongings(others) | _reached_by_files(), sorted({training.experiment for training in others})


def _reached_by_files() -> set[Path]:
    files = {"": _CONFIG, **experiment_files(config_files.EXPERIMENTS_FOLDER)}
    names = [name for name, path in files.items() if name != config_files.requested_experiment() and _may_reach(path)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return set().union(*pool.map(_reached_by_file, names))


def _may_reach(path: Path) -> bool:
    """Whether the root has anything of a file's dataset; where that is a folder, its name is not known here."""
    dataset = settings_in([_CONFIG, path])["Source"]["dataset"]
    names = (folder.name.rpartition("-")[0] for folder in layout.artefact_folders(root_folder() / layout.SOURCE))
    return dataset in OF_FILES or dataset.replace("/", "-") in names


def _reached_by_file(name: str) -> set[Path]:
    command = [sys.executable, "-m", "tasks.commands.reached", f"--Storage-root={root_folder()}"]
    environment = {**os.environ, config_files.EXPERIMENT_VARIABLE: name}
    # One of them, named so instead of by make, would override the one that is asked.
    if Path(environment.get("LUIGI_CONFIG_PATH", "")).resolve().parent == config_files.EXPERIMENTS_FOLDER:
        del environment["LUIGI_CONFIG_PATH"]
    done = subprocess.run(command, env=environment, cwd=PROJECT_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        whose = f"EXPERIMENT={name}" if name else "config.ini"
        raise StorageError(f"what {whose} reaches could not be found out, so nothing is removed: {said}")
    return {Path(folder) for folder in json.loads(done.stdout)}
