"""Where artefacts go: the storage root and the folders under it.

<root>/source/<dataset>-<fingerprint>/    what the source holds
<root>/records/<dataset>-<fingerprint>/   sharded TFRecords
<root>/runs/<model>-<fingerprint>/        one trained run
<root>/report/                            the newest report, always at this path
<root>/report/history/<date>/             the report of that date, where runs are scheduled
"""

import hashlib
from pathlib import Path

import luigi

from pipeline.config import StorageSettings
from tasks.settings import IntSetting

PROJECT_FOLDER = Path(__file__).resolve().parent.parent


class Storage(luigi.Config):
    """Section [Storage]."""

    root = luigi.Parameter(default="data", description="Folder for everything the pipeline writes.")
    on_busy = luigi.Parameter(default="leave", description="Another run is at work there: leave, or wait.")
    log_format = luigi.Parameter(default="text", description="Of the log on stderr: text, or json.")
    keep_runs = IntSetting(default=0, description="Newest runs that Nightly keeps; 0: all.")
    keep_days = IntSetting(default=0, description="Days for which Nightly keeps runs and dated reports; 0: for ever.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        StorageSettings(**self.param_kwargs)


def of_this_root(task_id: str) -> str:
    """The id by which a central scheduler knows a task: the same one on another storage root is another."""
    return f"{task_id}_{hashlib.sha256(str(root_folder()).encode()).hexdigest()[:10]}"


def root_folder() -> Path:
    """The storage root; a relative setting is taken from the project's folder, wherever Luigi was started."""
    return (PROJECT_FOLDER / Path(Storage().root).expanduser()).resolve()
