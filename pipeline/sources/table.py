"""Table: a file that lists images and their labels (one kind of source: **source** → records → shards → …).

CSV, TSV or Parquet, a row for each image; paths are relative to the table. Another column may name the split.
"""

from pathlib import Path, PurePosixPath

from pipeline.config import SourceSettings, closest, refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import words
from pipeline.sources.folder import Found

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}


def find_examples(settings: SourceSettings) -> Found:
    """The examples that the table of the settings lists.

    Raises:
        SettingsError: it is no such table, lacks a column, names another split, or leads out of its folder.
    """
    table = Path(settings.path).expanduser()
    rows = _read(table)
    paths = _column(rows, settings, "path_column")
    labels = _column(rows, settings, "label_column")
    splits = _column(rows, settings, "split_column") if settings.split_column else ["train"] * len(paths)
    examples: dict[str, list[tuple[str, str]]] = {}
    for number, (path, label, split) in enumerate(zip(paths, labels, splits, strict=True), start=1):
        if not path or not label or split not in SPLITS:
            found = words.row(number, path, label, split)
            refuse(
                "Source", "path", f"a path, a label and a split of {', '.join(SPLITS)} in each row", str(table), found
            )
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            refuse("Source", "path", "paths below the table's folder", str(table), f" Row {number} holds {path!r}.")
        examples.setdefault(split, []).append((str(PurePosixPath(path)), label))
    listed = [path for entries in examples.values() for path, _ in entries]
    if len(set(listed)) < len(listed):
        twice = next(path for path in listed if listed.count(path) > 1)
        refuse("Source", "path", "each image once", str(table), f" {twice!r} is listed more than once.")
    if "train" not in examples:
        refuse("Source", "path", "a table with images of the train split", str(table))
    names = sorted({label for entries in examples.values() for _, label in entries})
    if len(names) < 2:
        refuse("Source", "path", "at least two labels", str(table), f" Found: {names}.")
    return Found({split: sorted(examples[split]) for split in SPLITS if split in examples}, tuple(names))


def _read(table: Path) -> dict[str, list[str]]:
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if table.suffix.lower() == ".parquet":
            found = pyarrow.parquet.read_table(table)
        elif table.suffix.lower() in _DELIMITERS:
            parsing = pyarrow.csv.ParseOptions(delimiter=_DELIMITERS[table.suffix.lower()])
            found = pyarrow.csv.read_csv(table, parse_options=parsing)
        else:
            refuse("Source", "path", "a table ending in .csv, .tsv or .parquet", str(table))
    except (OSError, pyarrow.ArrowInvalid) as error:
        refuse("Source", "path", "a table that can be read", str(table), f" {error}")
    return {
        name: ["" if value is None else str(value) for value in found[name].to_pylist()] for name in found.column_names
    }


def _column(rows: dict[str, list[str]], settings: SourceSettings, name: str) -> list[str]:
    wanted = getattr(settings, name)
    if wanted not in rows:
        has = words.columns([*rows], closest(wanted, [*rows]))
        refuse("Source", name, f"a column of {settings.path}", wanted, has)
    return rows[wanted]
