"""Table: a file that lists images and their labels (one kind of source: **source** → records → shards → …).

CSV, TSV or Parquet, a row for each image; paths are relative to the table. Another column may name the split.
"""

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePosixPath

from pipeline.config.data import SourceSettings
from pipeline.config.refusal import closest, refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words
from pipeline.sources.encodings import other_encoding
from pipeline.sources.folder import Found, checked_labels, natural, split_called

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
_IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif"}
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
# As programs write one, in some languages with a comma.
_NUMBER = re.compile(r"[+-]?(\d+[.,]?|\d*[.,]\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
# What programs write into a cell without a value.
_MISSING = {"nan", "na", "n/a", "<na>", "none", "null"}
# Of fewer rows nothing can be told from how many values differ.
_FEW_ROWS, _MANY_DIFFERENT = 20, 0.9
_MAX_ROWS = 5


def find_examples(settings: SourceSettings) -> Found:
    """The examples that the table of the settings lists.

    Raises:
        SettingsError: it is no such table, lacks a column, names another split, leads out of its folder, holds no
            labels, or none of its images is there.
    """
    table = Path(settings.path).expanduser()
    asked = ["path_column", "label_column", *(["split_column"] if settings.split_column else [])]
    columns = _read(table, settings, asked)
    folder = Path(os.path.abspath(table)).parent
    paths, labels = [_below(path, folder, settings) for path in columns[0]], columns[1]
    named = columns[2] if settings.split_column else ["train"] * len(paths)
    splits = [split_called(name) for name in named]
    _check([*zip(paths, labels, named, strict=True)], settings)
    _check_labels(labels, settings)
    _check_presence(paths, folder, settings)
    examples: dict[str, list[tuple[str, str]]] = {}
    for path, label, split in zip(paths, labels, splits, strict=True):
        examples.setdefault(split, []).append((path, label))
    if "train" not in examples:
        refuse("Source", "path", "a table with images of the train split", settings.path)
    names = checked_labels(sorted(set(labels), key=natural), settings.path, "label_column")
    taken_for = {name: split for name, split in zip(named, splits, strict=True) if name != split}
    return Found({split: sorted(examples[split]) for split in SPLITS if split in examples}, names, taken_for)


def _below(path: str, folder: Path, settings: SourceSettings) -> str:
    """The path of an image below the table's folder, as it is written there; "" where there is none."""
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


def _check(rows: Sequence[tuple[str, str, str]], settings: SourceSettings) -> None:
    """That each row says of one image below the table what it is."""
    table = settings.path
    if rows and all(_ADDRESS.match(path) for path, _, _ in rows):
        examples = [path for path, _, _ in rows[:_MAX_ROWS]]
        hint = words.no_image_there(len(rows), examples, words.ADDRESSES)
        refuse("Source", "path_column", words.PATHS_THERE, settings.path_column, hint)
    _refuse_rows(rows, table, words.A_ROW, lambda path, label, split: not path or not label or not split_called(split))
    is_missing = [label.strip().lower() in _MISSING for _, label, _ in rows]
    if any(is_missing):
        found = [(number, repr(row[1])) for number, row in enumerate(rows, start=1) if is_missing[number - 1]]
        hint = words.missing_labels(found[:_MAX_ROWS], len(found[_MAX_ROWS:]))
        refuse("Source", "label_column", words.A_LABEL_EACH, settings.label_column, hint)
    _refuse_rows(
        rows,
        table,
        words.BELOW_THE_TABLE,
        lambda path, *_: path.startswith("/") or "\0" in path or ".." in PurePosixPath(path).parts,
    )
    times = Counter(path for path, _, _ in rows)
    if len(times) < len(rows):
        _refuse_rows(rows, table, words.ONE_ROW_EACH, lambda path, *_: times[path] > 1)


def _refuse_rows(rows: Sequence[tuple[str, str, str]], table: str, expected: str, is_bad: Callable[..., bool]) -> None:
    found = [(number, ", ".join(map(repr, row))) for number, row in enumerate(rows, start=1) if is_bad(*row)]
    if found:
        refuse("Source", "path", expected, table, words.rows(found[:_MAX_ROWS], len(found[_MAX_ROWS:])))


def _check_labels(labels: Sequence[str], settings: SourceSettings) -> None:
    """That the column holds labels: neither numbers to predict, nor names, nor several in a cell."""
    different = set(labels)
    fractions = sorted(label for label in different if not re.fullmatch(r"[+-]?\d+", label))
    hint = ""
    if fractions and all(map(_NUMBER.fullmatch, different)):
        hint = words.decimals(fractions[0])
    elif several := _several(different):
        hint = words.several_in_a_cell(several)
    elif len(labels) >= _FEW_ROWS and len(different) > _MANY_DIFFERENT * len(labels):
        hint = words.one_of_a_kind(len(different), len(labels))
    if hint:
        refuse("Source", "label_column", words.LABELS_COLUMN, settings.label_column, hint)


def _several(labels: Collection[str]) -> str:
    """A cell that holds several labels, "" where each holds one.

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
    """That an image is there at all: where all are not, one cause is more likely than many."""
    if not paths or any(os.path.lexists(folder / path) for path in paths):
        return
    hint = words.no_image_there(len(paths), paths[:_MAX_ROWS], _why_absent(paths[0], folder, settings))
    refuse("Source", "path_column", words.PATHS_THERE, settings.path_column, hint)


def _why_absent(path: str, folder: Path, settings: SourceSettings) -> str:
    """The likely cause, by the files that are there and called nearly so."""
    if re.match(r"[A-Za-z]:[/\\]", path):
        return words.WINDOWS
    prefix, suffix = settings.path_prefix, settings.path_suffix
    for other, cause in (
        (path.strip(), words.SPACES),
        (f"{prefix}/{path.removeprefix(prefix)}", words.A_SLASH),
        (f"{path.removesuffix(suffix)}.{suffix}", words.A_POINT),
    ):
        if other != path and os.path.isfile(folder / other):
            return cause
    name, ending = os.path.basename(path), os.path.splitext(path)[1]
    for top, _, files in os.walk(folder):
        below = os.path.relpath(top, folder)
        for file in files:
            here = "" if below == "." else f"{below}/"
            if f"{here}{file}".lower() == path.lower():
                return words.OTHER_CASE.format(found=f"{here}{file}")
            if not ending and os.path.splitext(file)[0] == name:
                if here == f"{os.path.dirname(path)}/".lstrip("/"):
                    return words.with_suffix(os.path.splitext(file)[1])
                return words.with_prefix(here) + words.with_suffix(os.path.splitext(file)[1])
            if f"{here}{file}".endswith(f"/{path}"):
                return words.with_prefix(f"{here}{file}".removesuffix(path))
    return ""


def _read(table: Path, settings: SourceSettings, asked: Sequence[str]) -> list[list[str]]:
    """The columns that settings name, as text: a label 007 is not the number 7."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    kind = table.suffix.lower()
    if kind != ".parquet" and kind not in _DELIMITERS:
        refuse("Source", "path", "a table ending in .csv, .tsv or .parquet", settings.path)
    try:
        if kind == ".parquet":
            schema = pyarrow.parquet.read_schema(table)
            wanted = _wanted(schema.names, settings, asked)
            for name in wanted:
                if pyarrow.types.is_nested(schema.field(name).type):
                    hint = words.column_type(name, schema.field(name).type)
                    refuse("Source", "path", "columns of texts or numbers", settings.path, hint)
            found = pyarrow.parquet.read_table(table, columns=wanted)
        else:
            _refuse_other_encodings(table, settings)
            # A quoted value may go on in the next line.
            parsing = pyarrow.csv.ParseOptions(delimiter=_DELIMITERS[kind], newlines_in_values=True)
            _refuse_other_forms(table, settings, asked)
            with pyarrow.csv.open_csv(table, parse_options=parsing) as opened:
                names = opened.schema.names
            wanted = _wanted(names, settings, asked)
            types = dict.fromkeys(wanted, pyarrow.string())
            reading = pyarrow.csv.ConvertOptions(include_columns=wanted, column_types=types)
            found = pyarrow.csv.read_csv(table, parse_options=parsing, convert_options=reading)
        return [found[name].cast(pyarrow.string()).fill_null("").to_pylist() for name in wanted]
    except (OSError, pyarrow.ArrowException) as error:
        refuse("Source", "path", "a table that can be read", settings.path, f" {str(error).rstrip('.')}.")


def _refuse_other_encodings(table: Path, settings: SourceSettings) -> None:
    if name := other_encoding(table.read_bytes()):
        refuse("Source", "path", "a table in UTF-8", settings.path, words.encoding(name))


def _refuse_other_forms(table: Path, settings: SourceSettings, asked: Sequence[str]) -> None:
    """Say what is wrong with a header that lacks a column because it is none, or is separated otherwise."""
    wanted, delimiter = [getattr(settings, setting) for setting in asked], _DELIMITERS[table.suffix.lower()]
    with table.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline().rstrip("\r\n")
    names = next(csv.reader([first], delimiter=delimiter), [])
    if set(wanted) <= set(names):
        return
    for mark, said in _OTHER_DELIMITERS.items():
        others = next(csv.reader([first], delimiter=mark), [])
        if mark != delimiter and (set(wanted) <= set(others) or (len(names) == 1 and len(others) > 1)):
            refuse("Source", "path", "a table that can be read", settings.path, words.delimiter(said, first))
    folder = Path(os.path.abspath(table)).parent
    if any(name.isdigit() or _is_image(name, folder, settings) for name in names) and not set(wanted) & set(names):
        refuse("Source", "path", "a table with a header", settings.path, words.no_header(first, wanted))


def _is_image(name: str, folder: Path, settings: SourceSettings) -> bool:
    has_ending = os.path.splitext(name)[1].lower() in _IMAGE_ENDINGS
    return has_ending or os.path.isfile(folder / f"{settings.path_prefix}{name}{settings.path_suffix}")


def _wanted(names: Sequence[str], settings: SourceSettings, asked: Sequence[str]) -> list[str]:
    for setting in asked:
        wanted = getattr(settings, setting)
        if names.count(wanted) != 1:
            has = words.columns(names, closest(wanted, names))
            refuse("Source", setting, f"one column of {settings.path}", wanted, has)
    return [getattr(settings, setting) for setting in asked]
