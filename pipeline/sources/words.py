"""Words: what the sources say in sentences; no artefact's identity covers this module, rewording rebuilds nothing."""

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
