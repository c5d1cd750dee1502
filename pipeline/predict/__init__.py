"""Predictions of files that a run was not trained on. ``job.py`` is the Beam job; images and texts have own rows."""

import os
from dataclasses import dataclass

from pipeline.config.data import FULL_RANGE


@dataclass(frozen=True)
class Job:
    """The run that predicts, and how.

    ``label_names``: its labels in the order of the probabilities, or its vocabulary. ``resize`` and ``value_range``: as
    in its records. ``views``: [Train] test_time_augmentation. ``model``: [Train] model of the present settings.
    """

    run: str
    label_names: tuple[str, ...]
    problem: str = "image_classification"
    resize: str = "crop"
    views: str = "none"
    model: str = ""
    value_range: tuple[int, int] = FULL_RANGE
    #: Folder of the files, JSON file that lists them, and folder for parts of the result: ``predict`` sets them.
    files: str = ""
    paths: str = ""
    parts: str = ""


def shown(path: str) -> str:
    """The path as text: a file may have a name that is none."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
