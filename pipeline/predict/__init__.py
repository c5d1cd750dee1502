"""Predictions of files that a run was not trained on: ``job.py`` is the Beam job, ``rows.py`` has rows of files."""

from dataclasses import dataclass

from pipeline.settings.data import FULL_RANGE


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
