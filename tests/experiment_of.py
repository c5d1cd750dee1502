"""The experiment that the runs of a settings file belong to."""

from pathlib import Path

from tasks.config_files import settings_in


def experiment_of(path: Path) -> str:
    """Empty means the name of the dataset."""
    return settings_in([path]).get("Experiment", {}).get("name", "")
