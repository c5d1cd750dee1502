"""Table: a file that lists images and their labels (one kind of source: **source** → records → shards → …).

CSV, TSV or Parquet, a row for each image; paths are relative to the table. Another column may name the split.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from pipeline.config import SourceSettings, closest, refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words
from pipeline.sources.folder import Found, checked_labels

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MAX_ROWS = 5


def find_examples(settings: SourceSettings) -> Found:
    """The examples that the table of the settings lists.

    Raises:
        SettingsError: it is no such table, lacks a column, names another split, or leads out of its folder.
    """
    table = Path(settings.path).expanduser()
    asked = ["path_column", "label_column", *(["split_column"] if settings.split_column else [])]
    columns = _read(table, settings, asked)
    paths, labels = columns[0], columns[1]
    splits = columns[2] if settings.split_column else ["train"] * len(paths)
    rows = [*zip((str(PurePosixPath(path)) if path else "" for path in paths), labels, splits, strict=True)]
    _check(rows, settings.path)
    examples: dict[str, list[tuple[str, str]]] = {}
    for path, label, split in rows:
        examples.setdefault(split, []).append((path, label))
    if "train" not in examples:
        refuse("Source", "path", "a table with images of the train split", settings.path)
    names = checked_labels(sorted(set(labels)), settings.path, "label_column")
    return Found({split: sorted(examples[split]) for split in SPLITS if split in examples}, names)


def _check(rows: Sequence[tuple[str, str, str]], table: str) -> None:
    """That each row says of one image below the table what it is."""
    _refuse_rows(rows, table, words.A_ROW, lambda path, label, split: not path or not label or split not in SPLITS)
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
            names = pyarrow.parquet.read_schema(table).names
            wanted = _wanted(names, settings, asked)
            found = pyarrow.parquet.read_table(table, columns=wanted)
        else:
            # A quoted value may go on in the next line.
            parsing = pyarrow.csv.ParseOptions(delimiter=_DELIMITERS[kind], newlines_in_values=True)
            with pyarrow.csv.open_csv(table, parse_options=parsing) as opened:
                names = opened.schema.names
            wanted = _wanted(names, settings, asked)
            types = dict.fromkeys(wanted, pyarrow.string())
            reading = pyarrow.csv.ConvertOptions(include_columns=wanted, column_types=types)
            found = pyarrow.csv.read_csv(table, parse_options=parsing, convert_options=reading)
        return [found[name].cast(pyarrow.string()).fill_null("").to_pylist() for name in wanted]
    except (OSError, pyarrow.ArrowException) as error:
        refuse("Source", "path", "a table that can be read", settings.path, f" {str(error).rstrip('.')}.")


def _wanted(names: Sequence[str], settings: SourceSettings, asked: Sequence[str]) -> list[str]:
    for setting in asked:
        wanted = getattr(settings, setting)
        if names.count(wanted) != 1:
            has = words.columns(names, closest(wanted, names))
            refuse("Source", setting, f"one column of {settings.path}", wanted, has)
    return [getattr(settings, setting) for setting in asked]
