"""Found: what files a source of single images has, by their names alone (the sources' aid).

Asked before any work, and by every run to see whether something has changed: neither TensorFlow nor Pillow is imported.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.config.data import TEXT, SourceSettings
from pipeline.config.refusal import refuse
from pipeline.records.keys import SPLITS
from pipeline.sources import folder as folders
from pipeline.sources import table as tables
from pipeline.sources import words
from pipeline.sources.listing import FolderError, Stamp, file_stamp, read_listing, stamps


def files_folder(settings: SourceSettings) -> Path:
    """The folder that paths are below.

    Raises:
        SettingsError: there is none.
    """
    if not settings.path:
        refuse("Source", "path", f"the path of the {settings.dataset}", settings.path)
    path = Path(os.path.abspath(Path(settings.path).expanduser()))
    if settings.dataset == TEXT:
        if not path.exists():
            refuse("Source", "path", words.A_TEXT, settings.path, words.NOT_THERE)
        return path if path.is_dir() else path.parent
    is_table = settings.dataset == "table"
    if not (os.path.isfile(path) if is_table else os.path.isdir(path)):
        other = words.IS_A_FOLDER if is_table else words.IS_A_FILE
        hint = other if os.path.exists(path) else words.NOT_THERE
        refuse("Source", "path", words.A_TABLE if is_table else words.A_FOLDER, settings.path, hint)
    return path.parent if is_table else path


def find(settings: SourceSettings) -> tuple[folders.Found, dict[str, Stamp]]:
    """The examples, and path → stamp of the files that are there.

    Raises:
        SettingsError: there is nothing of the kind at the path, or too little of it.
    """
    folder = files_folder(settings)
    if settings.dataset == "folder":
        there = _stamps(folder, settings)
        present = {path: stamp for path, stamp in there.items() if folders.may_be_image(path)}
        found = folders.find_examples(folder, present)
        # Those beside the labels' folders are expected there.
        ignored = sum("/" in path for path in there.keys() - present.keys())
        return replace(found, ignored=ignored), {
            path: present[path] for entries in found.examples.values() for path, _ in entries
        }
    found = _find_text(folder, settings) if settings.dataset == TEXT else tables.find_examples(settings)
    return found, _stamps_of(folder, [path for entries in found.examples.values() for path, _ in entries])


def _find_text(folder: Path, settings: SourceSettings) -> folders.Found:
    """The files of a text, split by split; one file, or one folder without those of splits, is train."""
    if os.path.isfile(Path(settings.path).expanduser()):
        return folders.Found({"train": [(Path(settings.path).name, "")]}, ())
    paths = sorted(_stamps(folder, settings))
    tops = {path.partition("/")[0] for path in paths if "/" in path}
    splits = {name: folders.split_called(name) for name in tops}
    has_splits = bool(tops) and all(splits.values())
    examples: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        # Beside folders of splits a file is a note.
        if not has_splits or "/" in path:
            split = splits[path.partition("/")[0]] if has_splits else "train"
            examples.setdefault(split, []).append((path, ""))
    if has_splits and (labels := _labels_of(paths)):
        refuse("Source", "path", words.A_TEXT, settings.path, words.labeled_texts(labels))
    if "train" not in examples:
        expected = words.TEXT_SPLITS if paths else words.A_TEXT
        refuse("Source", "path", expected, settings.path, "" if paths else " It holds no file.")
    taken_for = {name: split for name, split in splits.items() if has_splits and name != split}
    return folders.Found({split: examples[split] for split in SPLITS if split in examples}, (), taken_for)


def _labels_of(paths: Sequence[str]) -> list[str]:
    """The folders below those of splits, where they look like labels: several in each split, of several files each."""
    below: dict[str, Counter[str]] = {}
    for path in paths:
        split, *rest = path.split("/")
        if rest:
            below.setdefault(split, Counter()).update(rest[:1] if len(rest) > 1 else [])
    in_all = set.intersection(*map(set, below.values())) if below else set()
    labels = sorted(name for name in in_all if all(files[name] > 1 for files in below.values()))
    return labels if len(labels) > 1 else []


def beside(settings: SourceSettings) -> list[str]:
    """Paths of the files that say what the examples are, below their folder."""
    if settings.dataset == "table":
        return [Path(settings.path).name]
    if settings.dataset == TEXT:
        return []
    return [folders.LABELS_NAME] if (files_folder(settings) / folders.LABELS_NAME).is_file() else []


def changed_files(settings: SourceSettings, listing: str) -> Iterator[str]:
    """What has changed since the listing at a path was made, a few words for each file.

    Raises:
        SettingsError: what is there now is no such source any more.
    """
    known, folder = read_listing(listing), files_folder(settings)
    yield from (words.added(path) for path in beside(settings) if path not in known.beside)
    # Of a table that has not changed the examples are the same: only their files may differ.
    if settings.dataset == "table":
        listed = [path for split in known.splits.values() for path in split.paths]
        present = _stamps_of(folder, [*listed, *(one.path for one in known.skipped)])
    elif settings.dataset == TEXT:
        _, present = find(settings)
    else:
        there = _stamps(folder, settings)
        present = {path: stamp for path, stamp in there.items() if folders.may_be_image(path)}
        # As long as the same files are there, they are the same examples; those beside the labels' folders are none.
        if {path for path in present if "/" in path} == known.stamps.keys():
            present = {path: present[path] for path in known.stamps}
        else:
            _, present = find(settings)
    yield from known.changes(folder, present, Path(listing).parent)


def dataset_name(settings: SourceSettings) -> str:
    """The folder's, table's or text's own name, in letters that file names of shards may have."""
    path = Path(settings.path.rstrip("/")).expanduser()
    name = path.name if settings.dataset == "folder" or path.is_dir() else path.stem
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or settings.dataset


def _stamps(folder: Path, settings: SourceSettings) -> dict[str, Stamp]:
    try:
        return stamps(folder)
    except FolderError as error:
        refuse("Source", "path", error.expected, settings.path, error.hint)


def _stamps_of(folder: Path, paths: Sequence[str]) -> Mapping[str, Stamp]:
    found = {}
    for path in paths:
        try:
            found[path] = file_stamp(os.stat(os.path.join(folder, path)))
        except OSError:
            # Said when it is looked at.
            continue
    return found
