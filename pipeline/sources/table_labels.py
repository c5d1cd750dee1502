"""Labels and numbers in the columns of a table of images."""

import itertools
import logging
import math
import re
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

from pipeline.settings.data import SourceSettings
from pipeline.settings.schema import AUTO
from pipeline.sources.file_source import checked_labels, natural

CLASSES, MULTI_LABEL, REGRESSION = "image_classification", "multi_label", "regression"
# As programs write one, in some languages with a comma.
_NUMBER = re.compile(r"[+-]?(\d+[.,]?|\d*[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+")
_TRUTHS = {"false": 0.0, "true": 1.0}
# Distance of neighboring numbers around 1 in the records, and its largest share of the range of a column.
_FLOAT32_STEP, _MAX_STEP_SHARE = 2**-23, 1e-3
_LIST = re.compile(r"\[.*\]")
# Minimum number of rows to judge by the number of different values.
_MIN_ROWS, _MAX_DISTINCT_SHARE = 20, 0.9

_logger = logging.getLogger(__name__)


class Targets(NamedTuple):
    """The problem, the names of labels or values, and a label name or a tuple of values per image."""

    problem: str
    names: tuple[str, ...]
    labels: Sequence[Any]


def targets_of(
    settings: SourceSettings, names: Sequence[str], columns: Sequence[Sequence[str]], refuse: Callable
) -> Targets:
    """Interpret the columns of the labels as [Source] problem, or detect the problem from their cells.

    SettingsError: the cells do not fit the problem.
    """
    values, problem = {*itertools.chain(*columns)}, settings.problem
    if problem == AUTO:
        problem = _detected_problem(settings, names, values)
    if problem == CLASSES:
        if len(names) > 1:
            refuse(" One label per image needs one column.", "one column", "label_column")
        _check_labels(columns[0], refuse)
        found = checked_labels(sorted(values, key=natural), settings.path, "label_column")
        return Targets(CLASSES, found, columns[0])
    if problem == MULTI_LABEL and settings.label_separator:
        parts = [_split_label(cell, re.escape(settings.label_separator)) for cell in columns[0]]
        found = checked_labels(sorted(frozenset().union(*parts), key=natural), settings.path, "label_column")
        return Targets(MULTI_LABEL, found, [tuple(int(name in labels) for name in found) for labels in parts])
    numbers = {cell: _number(cell) for cell in values}
    for cell, number in numbers.items():
        if not (number in (0, 1) if problem == MULTI_LABEL else math.isfinite(number)):
            refuse(
                f" Found {cell!r}. For labels with a separator, set label_separator.",
                f"{'0 or 1' if problem == MULTI_LABEL else 'a number'} in each cell",
                "label_column",
            )
    for name, column in zip(names, columns, strict=True) if problem == REGRESSION else ():
        low, high = (choose(numbers[cell] for cell in column) for choose in (min, max))
        if _FLOAT32_STEP * max(abs(low), abs(high)) > _MAX_STEP_SHARE * (high - low):
            refuse(f" Those of {name} are all near {low}. Subtract a constant.", "numbers that differ", "label_column")
    kind = int if problem == MULTI_LABEL else float
    rows = [tuple(kind(numbers[cell]) for cell in row) for row in zip(*columns, strict=True)]
    return Targets(problem, tuple(names), rows)


def _detected_problem(settings: SourceSettings, names: Sequence[str], values: Set[str]) -> str:
    """The problem of [Source] problem = auto."""
    are_numbers, problem = all(map(_NUMBER.fullmatch, values)), CLASSES
    if settings.label_separator or (len(names) > 1 and {_number(cell) for cell in values} <= {0, 1}):
        problem = MULTI_LABEL
    elif are_numbers and (len(names) > 1 or not all(map(_INTEGER.fullmatch, values))):
        problem = REGRESSION
    if problem != CLASSES:
        _logger.info("Reading %s of %s for the problem %s.", ", ".join(names), settings.path, problem)
    return problem


def _number(cell: str) -> float:
    """The number in a cell, 0 or 1 for a truth value, and NaN for any other text."""
    if cell.lower() in _TRUTHS:
        return _TRUTHS[cell.lower()]
    return float(cell.replace(",", ".")) if _NUMBER.fullmatch(cell) else math.nan


def _check_labels(labels: Sequence[str], refuse: Callable) -> None:
    """Check that the column contains labels, not unique names or several labels in a cell."""
    different = set(labels)
    if several := _several(different):
        refuse(
            f" Cells such as {several!r} look like several labels per image. Set label_separator to the character "
            "between them, or name a column with one label per row.",
            "a column of labels",
            "label_column",
        )
    if len(labels) >= _MIN_ROWS and len(different) > _MAX_DISTINCT_SHARE * len(labels):
        refuse(
            f" The column has {len(different):,} different values in {len(labels):,} rows, like names or "
            "measurements. Name a column of labels, or set problem = regression for numbers.",
            "a column of labels",
            "label_column",
        )


def _several(labels: Set[str]) -> str:
    """A cell with several labels, "" if each has one.

    All cells are lists, or half of the parts, or more, are cells by themselves, or two cells differ in the order of
    their parts alone.
    """
    pieces = {label: _split_label(label) for label in labels}
    single = {part for its in pieces.values() if len(its) == 1 for part in its}
    several = {label: its for label, its in pieces.items() if len(its) > 1}
    if several and all(map(_LIST.fullmatch, labels)):
        return min(several)
    together = frozenset().union(*several.values())
    is_permuted = len(set(several.values())) < len(several)
    return min(several) if several and (is_permuted or 2 * len(together & single) >= len(together)) else ""


def _split_label(label: str, separator: str = "[,;|]") -> frozenset[str]:
    """The labels in a cell of several, without the brackets and quotes of a list."""
    is_list = _LIST.fullmatch(label)
    pieces = [part.strip() for part in re.split(separator, label[1:-1] if is_list else label)]
    return frozenset(filter(None, (part.strip("'\"") for part in pieces) if is_list else pieces))
