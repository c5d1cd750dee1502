"""Predictions for files that a run was not trained on, as a Beam job that writes a row per file."""

from dataclasses import dataclass, field

from pipeline.records.features import ImageForm
from pipeline.settings.data import FULL_RANGE

#: Maximum number of files to show of those with and without a prediction.
MAX_SHOWN = 20


@dataclass(frozen=True)
class Job:
    """The run that predicts, and its options.

    ``label_names`` are its labels in the order of the probabilities, or its vocabulary. ``form`` and ``value_range``
    are those of its records. ``views`` is [Train] test_time_augmentation. ``model`` is [Train] model of the present
    settings. ``is_watched`` is whether to count the predictions, see watch.py.
    """

    run: str
    label_names: tuple[str, ...]
    problem: str = "image_classification"
    form: ImageForm | None = field(default=ImageForm(0, "crop", "raw"))
    views: str = "none"
    model: str = ""
    value_range: tuple[int, int] = FULL_RANGE
    is_watched: bool = False
    #: Folder of relative paths, and folder for blocks of paths and results. ``predict`` sets them.
    files: str = ""
    parts: str = ""
