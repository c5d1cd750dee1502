"""A table of images in CSV, TSV or Parquet, with a row per image. Paths are relative to the table."""

import csv
import itertools
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pipeline.errors import closest, message
from pipeline.settings.schema import AUTO
from pipeline.sources.file_source import MISSING, SourceFiles, checked_labels, natural, split_called
from pipeline.sources.files import Example, FileIndex, Stamp, UndecodableError, decode_text, first_bytes, stamps_of
from pipeline.sources.image_folder import ImageFolder, ImageSource

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
# Matches numbers and names of images, which are no names of columns.
_VALUE = re.compile(rf"\d+|{ImageFolder.file_names}", re.IGNORECASE)
#: Names of columns that other programs write, in place of our defaults.
KNOWN_COLUMNS = {
    "path": ("file", "filename", "file_name", "filepath", "image", "image_path", "img"),
    "text": ("texts", "review", "sentence", "content", "comment", "message", "body", "document", "tweet"),
    "label": ("labels", "class", "category", "target", "sentiment"),
}
_MAX_ROWS = 5
# Enough files to find a similar name.
_MAX_FILES = 10_000
# Characters of a cell.
_MAX_CELL = 2**31 - 1

CLASSES, MULTI_LABEL, REGRESSION = "image_classification", "multi_label", "regression"
# As programs write one, in some languages with a comma.
_NUMBER = re.compile(r"[+-]?(\d+[.,]?|\d*[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_TRUTHS = {"false": 0.0, "true": 1.0}
# Distance of neighboring numbers around 1 in the records, and its largest share of the range of a column.
_FLOAT32_STEP, _MAX_STEP_SHARE = 2**-23, 1e-3
_LIST = re.compile(r"\[.*\]")
# Minimum number of rows to judge by the number of different values.
_MIN_ROWS, _MAX_DISTINCT_SHARE = 20, 0.9

_logger = logging.getLogger(__name__)


class Table(ImageSource):
    """A table of images: a CSV, TSV or Parquet file."""

    file_names, needs_folder = r".*\.(csv|tsv|parquet)", False
    #: Setting of the column with the examples.
    content_column: ClassVar[str] = "path_column"

    def find_files(self) -> SourceFiles:
        folder, files = self.folder(), self.read_table()
        paths = [example.path for example in files.listed]
        stamps = stamps_of(folder, paths)
        if not stamps:
            self.refuse(
                f" None of the {len(paths):,} images exists, such as {', '.join(map(repr, paths[:_MAX_ROWS]))}."
                f"{_similar(paths[0], folder)} "
                "Paths are relative to the table. Complete them with [Source] path_prefix and path_suffix. Download "
                "images that have an address.",
                *("paths of existing images", "path_column"),
            )
        listed = [one._replace(stamp=stamps.get(one.path, ())) for one in files.listed]
        return replace(files, listed=sorted(listed, key=lambda one: one.path))

    def names_of(self, cells: Sequence[str]) -> list[str]:
        """Paths of the images from the cells of their column."""
        folder = self.folder()
        return [self._path_in_folder(cell, folder) for cell in cells]

    def read_table(self) -> SourceFiles:
        """Read the example of each row, without stamps. ``cells`` are the cells with the examples, by path."""
        columns_read = self._columns()
        cells_of = {setting: cells for setting, _, cells in columns_read}
        names, columns = zip(*(column[1:] for column in columns_read if column[0] == "label_column"), strict=True)
        cells = cells_of[self.content_column]
        groups = cells_of.get("group_column", [""] * len(cells))
        split_names = cells_of.get("split_column", ["train"] * len(cells))
        paths = self.names_of(cells)
        self.cells = dict(zip(paths, cells, strict=True))
        # A row with a missing value in one of several columns counts as one without a label.
        labels = [next((cell for cell in row if _is_missing(cell)), "".join(row)) for row in zip(*columns, strict=True)]
        self._check_rows([*zip(paths, labels, split_names, strict=True)])
        if "train" not in map(split_called, split_names):
            self.refuse(expected="a table with rows of the train split")
        problem, label_names, targets = self._targets(names, columns)
        rows = zip(paths, targets, split_names, groups, strict=True)
        examples = [Example(path, label, group=group, split=split) for path, label, split, group in rows]
        return SourceFiles(examples, stamps_of(self.folder(), [self.path.name]), label_names, problem)

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        # An unchanged table has the same examples.
        return stamps_of(self.folder(), {*index.files, self.path.name})

    def _columns(self) -> list[tuple[str, str, list[str]]]:
        """Setting, name and cells of each column, as text because the label 007 is not the number 7."""
        ending = self.path.suffix.lower()
        if not self.has_name(self.path.name):
            self.refuse()
        import pyarrow
        import pyarrow.parquet

        try:
            if ending != ".parquet":
                return self._columns_of_text(_DELIMITERS[ending])
            schema = pyarrow.parquet.read_schema(self.path)
            wanted = self._wanted(schema.names)
            for _, name in wanted:
                if pyarrow.types.is_nested(kind := schema.field(name).type):
                    self.refuse(
                        f" The column {name} has values of the type {kind}. For images, set dataset = parquet.",
                        "one text or number in each cell",
                    )
            table = pyarrow.parquet.read_table(self.path, columns=[name for _, name in wanted])
            cells = {name: table[name].cast(pyarrow.string()).fill_null("").to_pylist() for _, name in wanted}
            return [(setting, name, cells[name]) for setting, name in wanted]
        except UndecodableError as error:
            self.refuse(f" {error.detail}.", "a table in UTF-8")
        except (OSError, csv.Error, pyarrow.ArrowException) as error:
            self.refuse(f" {str(error).rstrip('.')}.", "a readable table")

    @classmethod
    def names_in(cls, path: Path) -> Sequence[str]:
        """The names of the columns. Empty if the file is no readable table."""
        import pyarrow
        import pyarrow.parquet

        ending = path.suffix.lower()
        with suppress(OSError, csv.Error, pyarrow.ArrowException):
            if ending == ".parquet":
                return pyarrow.parquet.read_schema(path).names
            if cls.has_name(path.name):
                lines = first_bytes(path).decode("utf-8-sig", "replace").splitlines()
                return next(csv.reader(lines, delimiter=_DELIMITERS[ending]), [])
        return []

    def _columns_of_text(self, delimiter: str) -> list[tuple[str, str, list[str]]]:
        # This refuses another encoding by its name. The text is read again in parts, which need less memory.
        decode_text(self.path.read_bytes())
        # Texts may be longer than the limit of the library.
        csv.field_size_limit(_MAX_CELL)
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            rows = [*filter(None, csv.reader(file, delimiter=delimiter, strict=True))]
        if not rows:
            self.refuse(" It is empty.", "a table with rows")
        names, *rows = rows
        if marks := [mark for mark in _OTHER_DELIMITERS if mark != delimiter and mark in names[0] and len(names) == 1]:
            self.refuse(
                f" The header {names[0]!r:.80} has {_OTHER_DELIMITERS[marks[0]]}.",
                "commas (.csv) or tabs (.tsv) between the cells",
            )
        column_names = (getattr(self.settings, self.content_column), self.settings.label_column)
        if any(map(_VALUE.fullmatch, names)) and not {*column_names} & {*names}:
            self.refuse(
                f" The first line {delimiter.join(names)!r:.80} looks like a row. Insert a header before it, such as "
                f"{','.join(column_names)}.",
                "a table with a header",
            )
        wanted = self._wanted(names)
        if bad := [(number, row) for number, row in enumerate(rows, start=1) if len(row) != len(names)]:
            self.refuse(_rows(bad), f"a table with {len(names)} cells in each row")
        return [(setting, name, [row[names.index(name)] for row in rows]) for setting, name in wanted]

    def _wanted(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """The setting and name of each column of the examples, the labels, the split and the group."""
        settings, wanted = self.settings, []
        # A comma in the name of a column separates no columns.
        labels = settings.label_column
        labels = [labels] if labels in names else [name.strip() for name in labels.split(",")]
        for setting, name in (
            (self.content_column, getattr(settings, self.content_column)),
            *(("label_column", name) for name in labels),
            *((setting, name) for setting in ("split_column", "group_column") if (name := getattr(settings, setting))),
        ):
            known = [each for each in names if each.lower() in KNOWN_COLUMNS.get(name, ())]
            if name not in names and len(known) == 1:
                wanted.append((setting, known[0]))
                _logger.info("Using the column %s of %s as %s.", known[0], settings.path, setting)
            elif names.count(name) == 1:
                wanted.append((setting, name))
            else:
                hint = closest(name, names)
                self.refuse(f" The table has {', '.join(names)}.{hint}", f"one column of {settings.path}", setting)
        return wanted

    def _path_in_folder(self, path: str, folder: Path) -> str:
        """The path of an image below the table's folder. "" if the image does not exist."""
        if not path or _ADDRESS.match(path):
            return path
        path = f"{self.settings.path_prefix}{path}{self.settings.path_suffix}"
        if "\\" in path and not os.path.lexists(folder / path):
            path = path.replace("\\", "/")
        path = str(PurePosixPath(path))
        # By the names that folders have without links, too.
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        for one, top in ((path, str(folder)), (real, os.path.realpath(folder))):
            if path.startswith("/") and PurePosixPath(one).is_relative_to(top):
                return os.path.relpath(one, top)
        return path

    def _check_rows(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Check that each row has one image below the table's folder, and a label unless there may be none."""
        numbered, may_be_empty = [*enumerate(rows, start=1)], bool(self.settings.label_separator)
        if bad := [
            (number, (path, label, split))
            for number, (path, label, split) in numbered
            if not (path and split_called(split)) or (_is_missing(label) and (label or not may_be_empty))
        ]:
            self.refuse(
                f"{_rows(bad)} Complete or remove these rows. If a cell has the name of a label, rename the label.",
                f"a {self.noun}, a label and a split (train, validation or test) in each row",
            )
        if bad := [row for row in numbered if row[1][0][0] == "/" or "\0" in row[1][0] or ".." in row[1][0].split("/")]:
            self.refuse(_rows(bad), "paths below the table's folder")
        times = Counter(path for path, _, _ in rows)
        if bad := [row for row in numbered if times[row[1][0]] > 1]:
            self.refuse(_rows(bad), "one row per image")

    def _targets(
        self, names: Sequence[str], columns: Sequence[Sequence[str]]
    ) -> tuple[str, tuple[str, ...], Sequence[Any]]:
        """The problem, the names of labels or values, and a label name or a tuple of values per image."""
        values, settings = {*itertools.chain(*columns)}, self.settings
        problem, is_integer = settings.problem, all(map(_INTEGER.fullmatch, values))
        if problem == AUTO:
            problem = CLASSES
            if settings.label_separator or (len(names) > 1 and {_number(cell) for cell in values} <= {0, 1}):
                problem = MULTI_LABEL
            elif all(map(_NUMBER.fullmatch, values)) and (len(names) > 1 or not is_integer):
                problem = REGRESSION
            if problem != CLASSES:
                _logger.info("Reading %s of %s for the problem %s.", ", ".join(names), settings.path, problem)
        if problem == CLASSES:
            if len(names) > 1:
                self.refuse(" One label per image needs one column.", "one column", "label_column")
            if several := _several(values):
                self.refuse(
                    f" Cells such as {several!r} look like several labels. Set label_separator to what is between "
                    "them.",
                    *("one label per image", "label_column"),
                )
            if len(columns[0]) >= _MIN_ROWS and len(values) > _MAX_DISTINCT_SHARE * len(columns[0]):
                self.refuse(
                    f" It has {len(values):,} values in {len(columns[0]):,} rows. For numbers, set problem = "
                    "regression.",
                    *("a column of labels, not of names or measurements", "label_column"),
                )
            found = checked_labels(sorted(values, key=natural), settings.path, "label_column")
            return CLASSES, found, columns[0]
        if problem == MULTI_LABEL and settings.label_separator:
            parts = [_split_label(cell, re.escape(settings.label_separator)) for cell in columns[0]]
            found = checked_labels(sorted(frozenset().union(*parts), key=natural), settings.path, "label_column")
            return MULTI_LABEL, found, [tuple(int(name in labels) for name in found) for labels in parts]
        numbers = {cell: _number(cell) for cell in values}
        for cell, number in numbers.items():
            if not (number in (0, 1) if problem == MULTI_LABEL else math.isfinite(number)):
                self.refuse(
                    f" Found {cell!r}. For labels with a separator, set label_separator.",
                    *(f"{'0 or 1' if problem == MULTI_LABEL else 'a number'} in each cell", "label_column"),
                )
        commas = [cell for cell in values if "," in cell and problem == REGRESSION]
        # A decimal such as 0,125 or 1,5 shows what the comma means.
        if commas and all(map(_THOUSANDS.fullmatch, commas)):
            self.refuse(
                f" Found {min(commas)!r}, in which the comma may separate decimals or thousands.",
                *("numbers such as 1234.5", "label_column"),
            )
        for name, column in zip(names, columns, strict=True) if problem == REGRESSION else ():
            low, high = (choose(numbers[cell] for cell in column) for choose in (min, max))
            if _FLOAT32_STEP * max(abs(low), abs(high)) > _MAX_STEP_SHARE * (high - low):
                self.refuse(f" {name} is near {low}. Subtract a constant.", "numbers that differ", "label_column")
        kind = int if problem == MULTI_LABEL else float
        rows = [tuple(kind(numbers[cell]) for cell in row) for row in zip(*columns, strict=True)]
        return problem, tuple(names), rows


def _is_missing(cell: str) -> bool:
    return not cell or cell.strip().lower() in MISSING


@message
def _rows(rows: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Numbers and cells of rows; the first below the header is row 1."""
    listed = ", ".join(f"row {number} ({', '.join(map(repr, cells))})" for number, cells in rows[:_MAX_ROWS])
    return f" Found {listed}{f', and {len(rows) - _MAX_ROWS:,} more' if len(rows) > _MAX_ROWS else ''}."


@message
def _similar(path: str, folder: Path) -> str:
    """State the file below the folder that a missing path may mean. "" if there is none."""
    name = PurePosixPath(path).name
    files = itertools.islice(folder.rglob("*"), _MAX_FILES)
    similar = (file for file in files if name.lower() == file.name.lower() or name == file.stem)
    file = next(similar, None)
    return f" The first may mean {file.relative_to(folder).as_posix()!r}." if file else ""


def _number(cell: str) -> float:
    """The number in a cell, 0 or 1 for a truth value, and NaN for any other text."""
    if cell.lower() in _TRUTHS:
        return _TRUTHS[cell.lower()]
    return float(cell.replace(",", ".")) if _NUMBER.fullmatch(cell) else math.nan


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
