"""A search as plain data in ``search/<name>.json``, and the validation metrics of runs, which judge its trials.

Nothing here reads a metric of the test split, so that it cannot influence a search.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pipeline.errors import DamagedArtifactError
from pipeline.runs.metrics import METRICS_NAME
from pipeline.runs.record import RECORD_NAME
from pipeline.runs.validation import Count, Number, Untrusted, checked, read_text

_logger = logging.getLogger(__name__)


class Trial(Untrusted):
    """A trial after ``epochs``, with its validation metric by seed. Its own seed is the first, the best have more."""

    number: Count
    settings: dict[str, str | int | float]
    state: Literal["finished", "pruned", "failed", "running"]
    epochs: Count
    values: dict[str, Number]

    def mean(self) -> float:
        """Return the mean of the values. NaN if one is not a number, or if there is none."""
        values = [math.nan if value is None else value for value in self.values.values()]
        return sum(values) / len(values) if values else math.nan


class Search(Untrusted):
    """A search. ``best`` are trials, the best mean first. ``importances`` are empty with too few trials."""

    name: str
    experiment: str
    metric: Literal["validation_accuracy", "validation_loss"]
    requested: Count
    trials: list[Trial]
    best: list[Trial]
    importances: dict[str, float]
    settings_file: str


class _Validation(Untrusted):
    epoch: Count = 0
    validation_accuracy: Number = None
    validation_loss: Number = None


def read_epochs(run_folder: Path, metric: str) -> dict[int, float]:
    """Return the validation metric by epoch, NaN if unknown, as far as the run has written it."""
    path = run_folder / METRICS_NAME
    lines = read_text(path).split("\n") if path.exists() else []
    rows = [checked(_Validation, line, path) for line in filter(str.strip, lines)]
    return {row.epoch: math.nan if (value := getattr(row, metric)) is None else value for row in rows}


def read_result(run_folder: Path, metric: str) -> float | None:
    """Return the validation metric of a finished run. None if it is not a number."""
    path = run_folder / RECORD_NAME
    return getattr(checked(_Validation, read_text(path), path), metric)


def read_searches(files: Iterable[Path]) -> Iterator[Search]:
    """Yield the searches of these files. Invalid files are logged and omitted."""
    remedy = "Remove the file. The next start of the search writes it again."
    for path in files:
        try:
            yield checked(Search, read_text(path), path, remedy=remedy)
        except DamagedArtifactError as error:
            _logger.warning("Search not included in the report. %s", error)
