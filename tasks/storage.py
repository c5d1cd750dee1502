"""Where artefacts go: the storage root and the folders under it.

<root>/source/<dataset>-<fingerprint>/    what the source holds
<root>/records/<dataset>-<fingerprint>/   sharded TFRecords
<root>/runs/<model>-<fingerprint>/        one trained run
<root>/report/                            the newest report, always at this path
"""

from pathlib import Path

import luigi

from pipeline.config import StorageSettings

PROJECT_FOLDER = Path(__file__).resolve().parent.parent


class Storage(luigi.Config):
    """Section [Storage]."""

    root = luigi.Parameter(default="data", description="Folder for everything the pipeline writes.")
    on_busy = luigi.Parameter(default="leave", description="Another run is at work there: leave, or wait.")
    log_format = luigi.Parameter(default="text", description="Of the log on stderr: text, or json.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        StorageSettings(**self.param_kwargs)


def root_folder() -> Path:
    """The storage root; a relative setting is taken from the project's folder, wherever Luigi was started."""
    return (PROJECT_FOLDER / Path(Storage().root).expanduser()).resolve()
