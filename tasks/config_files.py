"""The files that Luigi reads settings from. Each is read here first, because Luigi has no message for users.

config.ini, central.ini, the file of the experiment and the file in ``LUIGI_CONFIG_PATH`` override each other in this
order. An invalid file is left out while the package is imported, and refused when the first task is made.
"""

import os
from pathlib import Path

from pipeline.errors import SettingsError
from pipeline.settings.experiments import experiment_files, require_experiment, settings_in

PROJECT_FOLDER = Path(__file__).resolve().parent.parent
EXPERIMENTS_FOLDER = PROJECT_FOLDER / "experiments"
#: The name of the experiment. make sets it from EXPERIMENT.
EXPERIMENT_VARIABLE = "TENSORCRAFT_EXPERIMENT"
# Luigi's own variable. Luigi reads the file when it is imported.
_OWN_FILE = "LUIGI_CONFIG_PATH"

_refused: list[SettingsError] = []


def load() -> None:
    """Let Luigi read the settings files. Call this before Luigi is imported."""
    own_file = os.environ.pop(_OWN_FILE, None)
    files = [PROJECT_FOLDER / "config.ini"]
    if os.environ.get("TENSORCRAFT_SCHEDULER") == "central":
        files.append(PROJECT_FOLDER / "central.ini")
    if experiment := experiment_files(EXPERIMENTS_FOLDER).get(requested_experiment()):
        files.append(experiment)
    files = [path for path in files if _is_valid(path)]
    if own_file and not Path(own_file).exists():
        _refused.append(
            SettingsError(f"environment variable {_OWN_FILE}: expected a settings file, found none: {own_file}")
        )
    elif own_file and _is_valid(Path(own_file)):
        files.append(Path(own_file))
        os.environ[_OWN_FILE] = own_file
    import luigi.configuration

    for path in files:
        luigi.configuration.add_config_path(str(path))


def check() -> None:
    """Refuse settings files that cannot be read, and an experiment without a file."""
    if _refused:
        raise _refused[0]
    if name := requested_experiment():
        require_experiment(EXPERIMENTS_FOLDER, name)


def requested_experiment() -> str:
    """The name of the settings file that the environment requests. Empty means none."""
    return os.environ.get(EXPERIMENT_VARIABLE, "").strip()


def _is_valid(path: Path) -> bool:
    try:
        if path.exists():
            settings_in([path])
    except OSError as error:
        _refused.append(SettingsError(f"{path}: cannot be read: {error.strerror}"))
    except SettingsError as error:
        _refused.append(error)
    else:
        return True
    return False
