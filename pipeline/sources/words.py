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


def dark(images: int, low: int, high: int, share: float) -> str:
    """Images of 16 bits hold values of fewer."""
    return (
        f"{images:,} images of 16 bits hold values from {low:,} to {high:,}, {100 * share:.1f} % of the range. They "
        "come out dark or flat. Set [Source] value_range = data, or two values that become black and white: 0, 4095."
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
NO_IMAGE = "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image"
NO_WHOLE_NUMBERS = "its pixels are fractions, not whole numbers"
# What else it is.
HEIC = "a HEIC image, convert it to JPEG"
JPEG_2000 = "a JPEG 2000 image, convert it to PNG"
SVG = "an SVG drawing, convert it to PNG"
HTML = "an HTML page, the download probably failed"
PDF = "a PDF document"
DAMAGED = "damaged or cut off"
TOO_LARGE = "claims too many pixels"
LEADS_OUT = "a link that leads out of the folder"
MISSING = "not there"
UNREADABLE = "cannot be read"
NO_FILE = "no regular file"

PATHS_THERE = "paths of images that are there"
BELOW_THE_TABLE = "paths below the table's folder"
ONE_ROW_EACH = "each image in one row"
A_TABLE = "a table of images: a CSV, TSV or Parquet file"
A_ROW = "in each row a path, a label and a split of train, validation, test"
A_LABEL_EACH = "a label in each row"
LABELS_COLUMN = "a column of labels"
A_FOLDER = "a folder of images, <label>/<image> or train/<label>/<image>"
A_TEXT = "a text in UTF-8, a file or a folder of them"
A_TEXT_TO_LEARN = "a text of at least two different characters"
TEXT_SPLITS = "files of train where there are others of validation or test"
A_LABEL = "labels of printable characters without /, at least one each"
LABELS_APART = "labels that differ in more than how their accents are encoded"
A_SPLIT = "no other folders beside train than validation and test"
NOT_THERE = " It does not exist."
IS_A_FILE = " It is a file: a table of images is dataset = table."
IS_A_FOLDER = " It is a folder: a folder of images is dataset = folder."


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
    spaces = any(name != name.strip() for name in names)
    space = " A space at the beginning or the end counts as a part of the label." if spaces else ""
    return f" Rename {', '.join(map(ascii, names))}.{space}"


def no_label_folders(files: int) -> str:
    """A folder has no folders of labels."""
    if not files:
        return " It holds no image."
    return f" Found {files:,} image{'' if files == 1 else 's'} but no label folders."


def empty_folder(path: str) -> str:
    """A folder may be meant as a label."""
    return f"{quoted(path)} holds no image: it is no label"


def ignored(files: int) -> str:
    """Files among images are none."""
    return f"{files:,} files whose names are never those of images are ignored, such as .txt, .csv and Thumbs.db"


def taken_for(names: Mapping[str, str]) -> str:
    """Splits are called otherwise than here."""
    return "; ".join(f"{quoted(name)} is taken for the {split} split" for name, split in sorted(names.items()))


def labeled_texts(labels: Sequence[str]) -> str:
    """Folders of texts are those of labels."""
    return (
        f" Its splits hold the folders {', '.join(map(quoted, labels[:5]))}: these look like labeled texts. One long "
        "text is learned here. Name one of these folders, if its texts are to be joined."
    )


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


def missing_labels(found: Sequence[tuple[int, str]], more: int) -> str:
    """Cells that say that there is no label."""
    return f"{rows(found, more)} Label these rows or remove them. A label that is really called so must be renamed."


def decimals(example: str) -> str:
    """A column of decimal numbers."""
    return (
        f" It holds decimals such as {example!r} and looks like numbers to predict (regression), which is not "
        "supported. Name a column of labels with [Source] label_column, or write whole numbers without a point."
    )


def one_of_a_kind(labels: int, images: int) -> str:
    """A column in which nearly every value is another."""
    return (
        f" Its {images:,} rows hold {labels:,} different values: it looks like a column of names or measurements. "
        "Name a column of labels with [Source] label_column."
    )


def several_in_a_cell(example: str) -> str:
    """A column whose cells hold several labels."""
    return (
        f" It holds cells such as {example!r} and looks like several labels for an image (multi-label), which is not "
        "supported. Name a column with one label each with [Source] label_column."
    )


def no_image_there(images: int, examples: Sequence[str], cause: str) -> str:
    """All images of a table are not there, for one reason."""
    listed = ", ".join(repr(path) if path != path.strip() else quoted(path) for path in examples)
    return f" None of the {images:,} images is there, such as {listed}.{cause}"


NO_TRAIN = " It has no train split."
WINDOWS = " These are paths of Windows: write them relative to the table."
SPACES = " There are files of these names without the space at their beginning or end."
A_SLASH = " There are files of these names with a slash after [Source] path_prefix."
A_POINT = " There are files of these names with a point before [Source] path_suffix."
OTHER_ENCODING = "another encoding than UTF-8, such as Latin-1 or Windows-1252"
ADDRESSES = " The column holds addresses: download the images, and name the files."
OTHER_CASE = " There are files whose names differ in capitals alone, such as {found}."


def with_suffix(suffix: str) -> str:
    """The names in the table lack an ending."""
    return f" There are files of these names with {suffix}: set [Source] path_suffix = {suffix}."


def with_prefix(prefix: str) -> str:
    """The files lie in another folder."""
    return f" There are files of these names in {quoted(prefix)}: set [Source] path_prefix = {prefix}."


def encoding(name: str) -> str:
    """A file is in another encoding than it should be."""
    return f" It is in {name}: save it in UTF-8."


def delimiter(name: str, first: str) -> str:
    """A table's cells are separated by something else than its ending says."""
    return f" Its cells seem to be separated by {name}, as in {first!r:.80}: save it with commas (.csv) or tabs (.tsv)."


def no_header(first: str, names: Sequence[str]) -> str:
    """A table's first line is no header."""
    return (
        f" Its first line is {first!r:.80} and seems to be a row: write a header before it, such as {','.join(names)}."
    )


def column_type(name: str, kind: object) -> str:
    """A column holds no text or numbers."""
    return f" The column {name} holds values of the type {kind}: write one text or number in each cell."


def zero_bytes(path: str, count: int) -> str:
    """A file holds what no text does."""
    return f" {quoted(path)} holds {count:,} zero bytes, which no text does: it is a file of another kind, or damaged."


def line_ends(path: str, count: int) -> str:
    """A file's lines end as on Windows."""
    return f"{quoted(path)}: {count:,} carriage returns are read as line ends"
