"""Predictions of files that a run was not trained on. ``job.py`` is the Beam job; images and texts have own rows."""

import os
from dataclasses import dataclass

from pipeline.config.data import FULL_RANGE


@dataclass(frozen=True)
class Job:
    """Plain data that every step needs, as ``job.predict`` has it."""

    run: str
    problem: str
    resize: str
    label_names: tuple[str, ...]
    #: Folder of the files, JSON file that lists them, and folder for parts of the result.
    files: str
    paths: str
    parts: str
    views: str
    model: str = ""
    value_range: tuple[int, int] = FULL_RANGE


def shown(path: str) -> str:
    """The path as text: a file may have a name that is none."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
