"""``make experiments``: the settings files in ``experiments/``, with what each is and whether its data are at hand.

It asks nobody for a dataset that would be downloaded, and reads no more than names of files.
"""

import logging
from pathlib import Path

from pipeline.config.data import OF_FILES
from pipeline.config.experiment import description, experiment_files, settings_in
from pipeline.errors import SettingsError
from pipeline.sources.tfds import is_prepared
from tasks import config_files, program
from tasks.commands import command
from tasks.config_files import PROJECT_FOLDER

_logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Print a line for each."""
    command.Parser(prog="make experiments", description=__doc__.splitlines()[0]).parse_args(argv)
    files = experiment_files(config_files.EXPERIMENTS_FOLDER)
    width = max(map(len, files), default=0) + 2
    for name, path in files.items():
        print(f"{name:{width}}{data_at_hand(path):16}{description(path)}")
    return 0


def data_at_hand(path: Path) -> str:
    """Whether the data of an experiment are on this machine, in a word or two."""
    try:
        source = settings_in([PROJECT_FOLDER / "config.ini", path])["Source"]
    except SettingsError as error:
        _logger.warning("%s", error)
        return "cannot be read"
    if source["dataset"] in OF_FILES:
        return "data at hand" if source["path"] and Path(source["path"]).expanduser().exists() else "path not there"
    return "data at hand" if is_prepared(source["dataset"], source["tfds_data_dir"]) else "to download"


if __name__ == "__main__":
    program.run(main)
