"""Source: which examples the settings come to, and what a source says of itself (**source** → records → shards → …)."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pipeline.config import SourceSettings
from pipeline.errors import DatasetUnavailableError
from pipeline.sources import words

SPLITS = ("train", "test")

# sha256 of the concatenated, sorted sha256(label byte ‖ pixels) of a split, taken from the dataset's original
# files: it depends on neither order nor file format. Only a dataset listed here can be verified.
CONTENT_DIGESTS = {
    "cifar10": {
        "train": "d59acf989e068e709ce686cda292672c7b212c08d29d3d3e6d8c3aa99eba6a85",
        "test": "899683d46c3a8c66fd56e1af12202e69fe5a4517be10b0f68e04c78fe585c57c",
    }
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """What a source holds; nothing in it depends on where the source lies.

    ``image_shape`` is (height, width, channels) of uint8 images; ``num_examples`` maps split → number of examples. Of a
    prepared dataset ``prepared_as`` is its folder below the one of all datasets, ``prepared_digest`` tells its content
    from that of another with the same name and version (see prepared.py); both are "" for the stand-in.
    """

    dataset: str
    origin: str
    version: str
    image_shape: tuple[int, int, int]
    label_names: tuple[str, ...]
    num_examples: Mapping[str, int]
    prepared_as: str = ""
    prepared_digest: str = ""

    @classmethod
    def from_json(cls, stored: Mapping) -> "SourceInfo":
        """The info that ``to_json`` wrote."""
        return cls(
            **{**stored, "image_shape": tuple(stored["image_shape"]), "label_names": tuple(stored["label_names"])}
        )

    def to_json(self) -> dict:
        """Plain JSON data, equal for equal infos."""
        return {**asdict(self), "image_shape": list(self.image_shape), "label_names": list(self.label_names)}


def resolve(settings: SourceSettings) -> SourceInfo:
    """Get the dataset that ``settings`` ask for; downloads and prepares it where it is not prepared already.

    Raises:
        DatasetUnavailableError: ``origin = tfds`` and the dataset is unavailable.
        SettingsError, UnsupportedDatasetError: the dataset is unknown, or not image classification.
        DamagedArtefactError: a download's digest is not the expected one.
    """
    # Here, where it is needed: whether a source is fresh can be asked without the import.
    from pipeline.sources import tfds

    if settings.origin == "synthetic":
        return _stand_in()
    try:
        return SourceInfo(origin="tfds", **tfds.prepare(settings.dataset, settings.tfds_data_dir))
    except DatasetUnavailableError as error:
        if settings.origin == "tfds":
            raise
        _logger.warning(
            "%s is unavailable: %s\nGoing on with the STAND-IN dataset: generated images, not %s. "
            "Its figures say nothing about %s. The next run tries the real source again.",
            *(settings.dataset, error, settings.dataset, settings.dataset),
        )
        return _stand_in()


def availability(settings: SourceSettings) -> str:
    """How the dataset that ``settings`` ask for would be had, in words; changes nothing.

    Raises:
        The same as ``resolve``, but for what only a download shows.
    """
    from pipeline.sources import tfds

    if settings.origin == "synthetic":
        return words.STAND_IN_REQUESTED
    try:
        return tfds.availability(settings.dataset, settings.tfds_data_dir)
    except DatasetUnavailableError as error:
        if settings.origin == "tfds":
            raise
        return words.only_stand_in(error)


def _stand_in() -> SourceInfo:
    from pipeline.sources import synthetic

    return SourceInfo(
        dataset="synthetic",
        origin="synthetic",
        version="1",
        image_shape=synthetic.IMAGE_SHAPE,
        label_names=synthetic.LABEL_NAMES,
        num_examples=synthetic.NUM_EXAMPLES,
    )
