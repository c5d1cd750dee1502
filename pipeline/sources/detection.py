"""Detection of the kind of the data at a path, from the names of the files and their first bytes."""

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import message
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_source import labels_in
from pipeline.sources.source import SOURCES

# Enough to judge a folder. A notes file or a picture of a chart is a small part of them.
_MAX_FILES, _MIN_SHARE = 1_000, 0.1


def kind_at(path: str) -> str:
    """Detect the kind of the data at a path. It is a value of [Source] dataset, such as "folder" or "table".

    Raises:
        SettingsError: The path is missing, or contains none of these kinds.
    """
    top = Path(path).expanduser()
    files = itertools.islice(_files(top), _MAX_FILES) if top.is_dir() else [top]
    counts = Counter(next((kind for kind in SOURCES if SOURCES.load(kind).has_file(file)), "") for file in files)
    # Notes are texts, too. They are beside data of every other kind.
    kinds = [kind for kind in SOURCES if kind != "text"] + ["text"]
    kind = next((kind for kind in kinds if counts[kind] > _MIN_SHARE * counts.total()), "")
    if kind == "text" and top.is_dir() and labels_in(os.path.relpath(path, top) for path in _files(top)):
        kind = "text_folder"
    is_file = top.is_file()
    if not {"folder": top.is_dir(), "table": is_file, "text_table": is_file, "": False}.get(kind, top.exists()):
        expected = "a folder of images or texts, a table, or another file of examples (docs/how-to/own-data.md)"
        refuse("Source", "path", expected, path, _hint(top, kind))
    return kind


@message
def _hint(top: Path, kind: str) -> str:
    """The remedy if a path has the wrong kind, or none."""
    if not top.exists():
        return " It does not exist."
    if kind in ("table", "text_table"):
        return " It contains a table. Pass the path of the table."
    if kind == "folder":
        return " It is one image. Pass the folder that contains a folder per label."
    return " It contains no such files." if top.is_dir() else " It has another form."


def _files(top: Path) -> Iterator[Path]:
    """The files below a folder by name, without hidden ones."""
    for folder, subfolders, names in os.walk(top):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))
