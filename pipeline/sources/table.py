"""A table of images: CSV, TSV or Parquet with a row per image. Paths are relative to the table."""

import csv
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

from pipeline.config.data import SourceSettings
from pipeline.config.refusal import closest, refuse
from pipeline.errors import message
from pipeline.records.keys import SPLITS
from pipeline.sources.file_index import FileIndex, FoundFiles
from pipeline.sources.file_source import split_called
from pipeline.sources.files import Stamp, is_in, other_encoding, quoted, stamps_of
from pipeline.sources.image_source import ImageSource, checked_labels, natural

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif"}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
# As programs write one, in some languages with a comma.
_NUMBER = re.compile(r"[+-]?(\d+[.,]?|\d*[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
# What programs write into a cell without a value.
_MISSING = {"nan", "na", "n/a", "<na>", "none", "null"}
# Fewer rows say nothing by how many values differ.
_FEW_ROWS, _MANY_DIFFERENT = 20, 0.9
_MAX_ROWS = 5


class Table(ImageSource):
    """A file that lists images, their labels and, in a column of choice, their splits."""

    def folder(self) -> Path:
        """The folder of the table."""
        path = self.absolute_path()
        if not path.is_file():
            _refuse(
                self.settings,
                "a table of images: a CSV, TSV or Parquet file",
                " It is a folder: a folder of images is dataset = folder." if path.exists() else " It does not exist.",
            )
        return path.parent

    def beside(self) -> list[str]:
        """The table."""
        return [self.path.name]

    def found_files(self) -> FoundFiles:
        """The images that the table lists."""
        folder, settings = self.folder(), self.settings
        asked = ["path_column", "label_column", *(["split_column"] if settings.split_column else [])]
        columns = _read(self.path, settings, asked)
        paths, labels = [_below(path, folder, settings) for path in columns[0]], columns[1]
        named = columns[2] if settings.split_column else ["train"] * len(paths)
        _check_rows([*zip(paths, labels, named, strict=True)], settings)
        _check_labels(labels, settings)
        _check_presence(paths, folder, settings)
        splits = [split_called(name) for name in named]
        if "train" not in splits:
            _refuse(settings, "a table with images of the train split")
        rows = sorted(zip(splits, paths, labels, strict=True))
        examples = {split: [(path, label) for its, path, label in rows if its == split] for split in SPLITS}
        names = checked_labels(sorted(set(labels), key=natural), settings.path, "label_column")
        renamed = {name: split for name, split in zip(named, splits, strict=True) if name != split}
        return FoundFiles(
            {split: listed for split, listed in examples.items() if listed}, stamps_of(folder, paths), names, renamed
        )

    def stamps_now(self, index: FileIndex) -> Mapping[str, Stamp]:
        """The examples of a table that has not changed are the same: only their files may differ."""
        return stamps_of(self.folder(), [*index.stamps])


def _refuse(settings: SourceSettings, expected: str, hint: str = "", setting: str = "path") -> NoReturn:
    refuse("Source", setting, expected, getattr(settings, setting), hint)


def _below(path: str, folder: Path, settings: SourceSettings) -> str:
    """The path of an image below the table's folder, as it is written there; "" if there is none."""
    if not path or _ADDRESS.match(path):
        return path
    path = f"{settings.path_prefix}{path}{settings.path_suffix}"
    if "\\" in path and not os.path.lexists(folder / path):
        path = path.replace("\\", "/")
    path = str(PurePosixPath(path))
    if not path.startswith("/"):
        return path
    # By the names that folders have without links, too.
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    for one, top in ((path, str(folder)), (real, os.path.realpath(folder))):
        if PurePosixPath(one).is_relative_to(top):
            return os.path.relpath(one, top)
    return path


def _check_rows(rows: Sequence[tuple[str, str, str]], settings: SourceSettings) -> None:
    """That each row is of one image below the table."""
    if rows and all(_ADDRESS.match(path) for path, _, _ in rows):
        cause = _absent([path for path, _, _ in rows], None, settings)
        _refuse(settings, "paths of images that are there", cause, "path_column")
    numbered = [*enumerate(rows, start=1)]
    if bad := [row for row in numbered if not (row[1][0] and row[1][1] and split_called(row[1][2]))]:
        _refuse(settings, "in each row a path, a label and a split of train, validation, test", _rows(bad))
    if bad := [(number, (row[1],)) for number, row in numbered if row[1].strip().lower() in _MISSING]:
        _refuse(
            settings,
            "a label in each row",
            f"{_rows(bad)} Label these rows or remove them. A label that is really called so must be renamed.",
            "label_column",
        )
    if bad := [row for row in numbered if row[1][0][0] == "/" or "\0" in row[1][0] or ".." in row[1][0].split("/")]:
        _refuse(settings, "paths below the table's folder", _rows(bad))
    times = Counter(path for path, _, _ in rows)
    if bad := [row for row in numbered if times[row[1][0]] > 1]:
        _refuse(settings, "each image in one row", _rows(bad))


@message
def _rows(found: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Numbers and cells of rows; the first below the header is row 1."""
    listed = "; ".join(f"row {number}: {', '.join(map(repr, cells))}" for number, cells in found[:_MAX_ROWS])
    more = len(found[_MAX_ROWS:])
    return f" Found {listed}{f'; and {more:,} more' if more else ''}."


def _check_labels(labels: Sequence[str], settings: SourceSettings) -> None:
    """That the column has labels: neither numbers to predict, nor names, nor several in a cell."""
    different = set(labels)
    fractions = sorted(label for label in different if not re.fullmatch(r"[+-]?\d+", label))
    if fractions and all(map(_NUMBER.fullmatch, different)):
        _refuse(
            settings,
            "a column of labels",
            f" It holds decimals such as {fractions[0]!r} and looks like numbers to predict (regression), which is not "
            "supported. Name a column of labels with [Source] label_column, or write whole numbers without a point.",
            "label_column",
        )
    if several := _several(different):
        _refuse(
            settings,
            "a column of labels",
            f" It holds cells such as {several!r} and looks like several labels for an image (multi-label), which is "
            "not supported. Name a column with one label each with [Source] label_column.",
            "label_column",
        )
    if len(labels) >= _FEW_ROWS and len(different) > _MANY_DIFFERENT * len(labels):
        _refuse(
            settings,
            "a column of labels",
            f" Its {len(labels):,} rows hold {len(different):,} different values: it looks like a column of names or "
            "measurements. Name a column of labels with [Source] label_column.",
            "label_column",
        )


def _several(labels: Collection[str]) -> str:
    """A cell with several labels, "" if each has one.

    Half of the parts, or more, are cells by themselves, or two cells differ in the order of their parts alone. Of
    words that is so of all parts, of two cells at least: a label may be two words.
    """
    if lists := [label for label in labels if re.fullmatch(r"\[.*\]", label)]:
        return min(lists) if len(lists) == len(labels) else ""
    for pattern, share, least in ((r"[,;|]", 0.5, 1), (r"\s", 1.0, 2)):
        cells = {label: [part.strip() for part in re.split(pattern, label) if part.strip()] for label in labels}
        cells = {label: parts for label, parts in cells.items() if len(parts) > 1}
        parts = {part for of_it in cells.values() for part in of_it}
        is_permuted = pattern != r"\s" and len({frozenset(of_it) for of_it in cells.values()}) < len(cells)
        if len(cells) >= least and (is_permuted or len(parts & set(labels)) >= share * len(parts)):
            return min(cells)
    return ""


def _check_presence(paths: Sequence[str], folder: Path, settings: SourceSettings) -> None:
    """That an image exists: if all are missing, one cause is more likely than many."""
    if paths and not any(os.path.lexists(folder / path) for path in paths):
        _refuse(settings, "paths of images that are there", _absent(paths, folder, settings), "path_column")


@message
def _absent(paths: Sequence[str], folder: Path | None, settings: SourceSettings) -> str:
    """Hint that no image exists, with the likely cause; ``folder`` is None for addresses."""
    listed = ", ".join(repr(path) if path != path.strip() else quoted(path) for path in paths[:_MAX_ROWS])
    cause = " The column holds addresses: download the images, and name the files."
    if folder:
        cause = _why_absent(paths[0], folder, settings)
    return f" None of the {len(paths):,} images is there, such as {listed}.{cause}"


@message
def _why_absent(path: str, folder: Path, settings: SourceSettings) -> str:
    """The likely cause, by existing files with similar names."""
    if re.match(r"[A-Za-z]:[/\\]", path):
        return " These are paths of Windows: write them relative to the table."
    prefix, suffix, there = settings.path_prefix, settings.path_suffix, " There are files of these names"
    for other, cause in (
        (path.strip(), "without the space at their beginning or end"),
        (f"{prefix}/{path.removeprefix(prefix)}", "with a slash after [Source] path_prefix"),
        (f"{path.removesuffix(suffix)}.{suffix}", "with a point before [Source] path_suffix"),
    ):
        if other != path and os.path.isfile(folder / other):
            return f"{there} {cause}."
    name, ending = os.path.basename(path), os.path.splitext(path)[1]
    for top, _, files in os.walk(folder):
        below = os.path.relpath(top, folder)
        here = "" if below == "." else f"{below}/"
        in_it = f"{there} in {quoted(here)}: set [Source] path_prefix = {here}."
        for file in files:
            if f"{here}{file}".lower() == path.lower():
                return f" There are files whose names differ in capitals alone, such as {here}{file}."
            stem, suffix = os.path.splitext(file)
            if not ending and stem == name:
                with_it = f"{there} with {suffix}: set [Source] path_suffix = {suffix}."
                return with_it if here == f"{os.path.dirname(path)}/".lstrip("/") else in_it + with_it
            if f"{here}{file}".endswith(f"/{path}"):
                prefix = f"{here}{file}".removesuffix(path)
                return f"{there} in {quoted(prefix)}: set [Source] path_prefix = {prefix}."
    return ""


def _read(table: Path, settings: SourceSettings, asked: Sequence[str]) -> list[list[str]]:
    """The columns that settings name, as text: a label 007 is not the number 7."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    kind = table.suffix.lower()
    if kind != ".parquet" and kind not in _DELIMITERS:
        _refuse(settings, "a table ending in .csv, .tsv or .parquet")
    try:
        if kind == ".parquet":
            schema = pyarrow.parquet.read_schema(table)
            wanted = _wanted(schema.names, settings, asked)
            for name in wanted:
                if pyarrow.types.is_nested(kind := schema.field(name).type):
                    _refuse(
                        settings,
                        "columns of texts or numbers",
                        f" The column {name} holds values of the type {kind}: write one text or number in each cell.",
                    )
            found = pyarrow.parquet.read_table(table, columns=wanted)
        else:
            _refuse_other_forms(table, settings, asked)
            # A quoted value may go on in the next line.
            parsing = pyarrow.csv.ParseOptions(delimiter=_DELIMITERS[kind], newlines_in_values=True)
            with pyarrow.csv.open_csv(table, parse_options=parsing) as opened:
                wanted = _wanted(opened.schema.names, settings, asked)
            types = dict.fromkeys(wanted, pyarrow.string())
            reading = pyarrow.csv.ConvertOptions(include_columns=wanted, column_types=types)
            found = pyarrow.csv.read_csv(table, parse_options=parsing, convert_options=reading)
        return [found[name].cast(pyarrow.string()).fill_null("").to_pylist() for name in wanted]
    except (OSError, pyarrow.ArrowException) as error:
        _refuse(settings, "a table that can be read", f" {str(error).rstrip('.')}.")


def _refuse_other_forms(table: Path, settings: SourceSettings, asked: Sequence[str]) -> None:
    """Refuse another encoding or delimiter, and a missing header."""
    if encoding := other_encoding(table.read_bytes()):
        _refuse(settings, "a table in UTF-8", f" {is_in(encoding)}")
    wanted, delimiter = [getattr(settings, setting) for setting in asked], _DELIMITERS[table.suffix.lower()]
    with table.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline().rstrip("\r\n")
    names = next(csv.reader([first], delimiter=delimiter), [])
    if set(wanted) <= set(names):
        return
    for mark, said in _OTHER_DELIMITERS.items():
        others = next(csv.reader([first], delimiter=mark), [])
        if mark != delimiter and (set(wanted) <= set(others) or (len(names) == 1 and len(others) > 1)):
            _refuse(
                settings,
                "a table that can be read",
                f" Its cells seem to be separated by {said}, as in {first!r:.80}: save it with commas (.csv) or tabs "
                "(.tsv).",
            )
    folder = Path(os.path.abspath(table)).parent
    if any(name.isdigit() or _is_image(name, folder, settings) for name in names) and not set(wanted) & set(names):
        _refuse(
            settings,
            "a table with a header",
            f" Its first line is {first!r:.80} and seems to be a row: write a header before it, such as "
            f"{','.join(wanted)}.",
        )


def _is_image(name: str, folder: Path, settings: SourceSettings) -> bool:
    has_ending = os.path.splitext(name)[1].lower() in _IMAGE_ENDINGS
    return has_ending or os.path.isfile(folder / f"{settings.path_prefix}{name}{settings.path_suffix}")


def _wanted(names: Sequence[str], settings: SourceSettings, asked: Sequence[str]) -> list[str]:
    for setting in asked:
        wanted = getattr(settings, setting)
        if names.count(wanted) != 1:
            has = ", ".join(names)
            _refuse(
                settings, f"one column of {settings.path}", f" The table has {has}.{closest(wanted, names)}", setting
            )
    return [getattr(settings, setting) for setting in asked]
