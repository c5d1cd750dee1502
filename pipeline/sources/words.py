"""Words: what the sources say in sentences; no artefact's identity covers this module, rewording rebuilds nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

STAND_IN_REQUESTED = "the stand-in, as asked for"


def only_stand_in(reason: Exception) -> str:
    """Only the stand-in is available."""
    return f"unavailable, a run takes the placeholder: {reason}"


def prepared(dataset: str, folder: Path) -> str:
    """The dataset is there."""
    return f"{dataset} is prepared in {folder}"


def downloadable(dataset: str, folder: Path) -> str:
    """The dataset's hosts answer."""
    return f"{dataset} can be downloaded to {folder}"


def unsupported(dataset: str, expected: str) -> str:
    """The dataset holds something else than this pipeline takes."""
    return (
        f"{dataset} is not an image-classification dataset this pipeline can take: expected {expected}. "
        "Choose another, such as cifar10 or mnist, with [Source] dataset or --Source-dataset."
    )


def unreadable(folder: Path, split: str, found: str) -> str:
    """Prepared files do not hold what their description says."""
    return (
        f"{folder}: the {split} split cannot be read as its dataset_info.json describes it: {found}. "
        "Delete that folder and run again to prepare it anew."
    )


def bad_examples(bad: Mapping[str, tuple[str, str]]) -> str:
    """Each image that cannot be used, a line each: path → reason and detail."""
    return "\n".join(f"  {quoted(path)}: {': '.join(filter(None, why))}" for path, why in bad.items())


def quoted(path: str) -> str:
    """A path as a terminal can show it, on one line."""
    return path if path.isprintable() else ascii(path)


def left_out(count: int, total: int, listed: str) -> str:
    """Images cannot be used, and are left out."""
    return f"{count:,} of {total:,} images are left out:\n{listed}"


def refused_examples(count: int, total: int, path: str, listed: str) -> str:
    """Images cannot be used, and none may be left out."""
    return (
        f"{path}: {count:,} of {total:,} images cannot be used. Mend or remove them, or leave them out with [Source] "
        f"on_bad_example = skip.\n{listed}"
    )


def too_many_bad(count: int, total: int, share: float, path: str, listed: str) -> str:
    """More images cannot be used than may be left out."""
    return (
        f"{path}: {count:,} of {total:,} images cannot be used, more than [Source] max_bad_share = {share}. Mend or "
        f"remove them, or raise it.\n{listed}"
    )


def found(path: str, count: int) -> str:
    """Images are there."""
    return f"{count:,} images in {path}"


def found_text(path: str, files: int) -> str:
    """A text is there."""
    return f"a text of {files:,} file{'' if files == 1 else 's'} in {path}"


def changed_file(path: str, problem: str) -> str:
    """A file is no longer what the source's listing says."""
    return f"{path}: {problem} since the images were listed. Run again: the source is listed anew."


# Why a file cannot be used; what is counted.
EMPTY = "empty"
NO_IMAGE = "not a JPEG, PNG, BMP, GIF or WebP image"
DAMAGED = "damaged or cut off"
TOO_LARGE = "claims too many pixels"
LEADS_OUT = "a link that leads out of the folder"
MISSING = "not there"
UNREADABLE = "cannot be read"
NO_FILE = "no regular file"

BELOW_THE_TABLE = "paths below the table's folder"
ONE_ROW_EACH = "each image in one row"
A_TABLE = "a table of images: a CSV, TSV or Parquet file"
A_ROW = "in each row a path, a label and a split of train, validation, test"
A_FOLDER = "a folder of images, <label>/<image> or train/<label>/<image>"
A_TEXT = "a text in UTF-8, a file or a folder of them"
A_TEXT_TO_LEARN = "a text of at least two different characters"
TEXT_SPLITS = "files of train where there are others of validation or test"
A_LABEL = "labels of printable characters without /, at least one each"
LABELS_APART = "labels that differ in more than how their accents are encoded"
A_SPLIT = "no other folders beside train than validation and test"
NOT_THERE = " There is nothing of that name."
IS_A_FILE = " It is a file: a table of images is dataset = table."
IS_A_FOLDER = " It is a folder: a folder of images is dataset = folder."
NOT_READABLE = " It cannot be read: change its permissions, or run as a user who may."


def leads_out(link: str, to: str) -> str:
    """A link to elsewhere."""
    return f" {quoted(link)} is a link to {to}, out of the folder. Copy what it links to into the folder."


def unreadable_folder(folder: str, reason: str) -> str:
    """The operating system does not let us look into a folder."""
    return f" {quoted(folder)} cannot be read: {reason}. Change its permissions, or run as a user who may."


def empty_text(split: str) -> str:
    """There is nothing to learn from."""
    return f" The {split} split is empty."


def one_character(character: str) -> str:
    """There is nothing to tell apart."""
    return f" It has {character!a} alone."


def gone_text(path: Path) -> str:
    """The source's artefact has not the text it had."""
    return f'{path}: expected the tokens of the text, they are not there as they were. Run "make pipeline" again.'


def not_text(path: str, reason: Exception) -> str:
    """A file of labels is no text."""
    return f" {path} is no text in UTF-8: {reason}."


def labels(names: Sequence[str]) -> str:
    """Labels that cannot be."""
    return f" Rename {', '.join(map(ascii, names))}."


def folders(names: Sequence[str]) -> str:
    """Folders beside those of splits."""
    return f" Found {', '.join(map(ascii, names))}: rename what is meant to be a split, move the rest elsewhere."


def removed(path: str) -> str:
    """A file was there before."""
    return f"{quoted(path)} was removed"


def added(path: str) -> str:
    """A file was not there before."""
    return f"{quoted(path)} was added"


def differs(path: str) -> str:
    """A file has other content than before."""
    return f"{quoted(path)} has changed"


def rows(found: Sequence[tuple[int, str]], more: int) -> str:
    """What rows of a table hold; the first below its head is row 1."""
    listed = "; ".join(f"row {number}: {what}" for number, what in found)
    return f" Found {listed}{f'; and {more:,} more' if more else ''}."


def columns(names: Sequence[str], hint: str) -> str:
    """What columns a table has."""
    return f" The table has {', '.join(names)}.{hint}"


def a_line_each(name: str) -> str:
    """What a list of labels is to hold."""
    return f"in its {name} a line for each folder of images"


def shorter_than(characters: int, split: str) -> str:
    """What a sequence's length has to be in a short text."""
    return f"less than the {characters:,} characters of the {split} split"
