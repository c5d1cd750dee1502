"""Words: what the sources say in sentences; no artefact's identity covers this module, rewording rebuilds nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

STAND_IN_REQUESTED = "the stand-in, as asked for"


def only_stand_in(reason: Exception) -> str:
    """Only the stand-in is available."""
    return f"only a STAND-IN, generated images: {reason}"


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


def bad_examples(bad: Mapping[str, Sequence[str]]) -> str:
    """Each image that cannot be used, a line each."""
    return "\n".join(f"  {path}: {reason}" for reason, paths in bad.items() for path in paths)


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


def changed_file(path: Path, problem: str) -> str:
    """A file is no longer what the source's listing says."""
    return f"{path}: {problem} since the images were listed. Run again: the source is listed anew."


LEADS_OUT = "a link that leads out of the folder"
A_ROW = "a path, a label and a split of train, validation, test in each row"
A_FOLDER = "a folder of images, <label>/<image> or train/<label>/<image>"


def cannot_be_read(reason: str) -> str:
    """The operating system does not let us."""
    return f"cannot be read: {reason}"


def removed(path: str) -> str:
    """A file was there before."""
    return f"{path} was removed"


def added(path: str) -> str:
    """A file was not there before."""
    return f"{path} was added"


def differs(path: str) -> str:
    """A file has other content than before."""
    return f"{path} has changed"


def row(number: int, path: str, label: str, split: str) -> str:
    """What a row of a table holds."""
    return f" Row {number} holds {path!r}, {label!r}, {split!r}."


def columns(names: Sequence[str], hint: str) -> str:
    """What columns a table has."""
    return f" The table has {', '.join(names)}.{hint}"
