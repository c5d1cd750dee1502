"""The kinds of sources and the description of a source. Importing this module needs the standard library alone."""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.config.data import FULL_RANGE, PLACEHOLDER, TEXTS, SourceSettings
from pipeline.config.refusal import refuse
from pipeline.errors import DatasetUnavailableError, message
from pipeline.records.features import TOKENS, FeatureSpec, ImageForm, spec_from_json, spec_to_json, text_spec
from pipeline.records.keys import index_key
from pipeline.sources.file_index import read_index

_logger = logging.getLogger(__name__)

TFDS, SYNTHETIC, SYNTHETIC_TEXT = "tfds", "synthetic", "synthetic text"
#: Origin → the class of its kind, in a module that is imported when it is used.
KINDS = {
    TFDS: "pipeline.sources.tfds:Tfds",
    "folder": "pipeline.sources.image_folder:ImageFolder",
    "table": "pipeline.sources.table:Table",
    "text": "pipeline.sources.text:Text",
    SYNTHETIC: "pipeline.sources.placeholder:PlaceholderImages",
    SYNTHETIC_TEXT: "pipeline.sources.placeholder:PlaceholderText",
}
#: Origin → the function that reads a range of a split. A text of any origin is read from its tokens.
READERS = {
    TFDS: "pipeline.sources.tfds_reading:read_prepared",
    "folder": "pipeline.sources.image_reading:read_files",
    "table": "pipeline.sources.image_reading:read_files",
    "text": "pipeline.sources.tokens:read_examples",
    SYNTHETIC: "pipeline.sources.placeholder_images:read_drawn",
}


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """Contents of a source, independent of its place."""

    dataset: str
    #: Key of ``KINDS``.
    origin: str
    version: str
    #: With the image encoding of the source.
    features: FeatureSpec
    #: Labels, or the vocabulary of a text.
    label_names: tuple[str, ...]
    #: Per split; of a text tokens.
    num_examples: Mapping[str, int]
    #: Share of train that becomes the test split, if the source has none.
    test_share: float = 0.0
    #: Stored bytes, approximately.
    bytes_per_example: int = 0
    #: Least number of pixels of any side of an image, 0 if unknown.
    smallest_side: int = 0
    #: Reason → number of files that are left out.
    skipped: Mapping[str, int] = field(default_factory=dict)
    #: Values of 16-bit images that become black and white.
    value_range: tuple[int, int] = FULL_RANGE
    #: Folder of a prepared TFDS dataset below that of all datasets.
    prepared_as: str = ""
    #: Identifies the contents among sources of one name and version, empty for a placeholder.
    digest: str = ""

    @classmethod
    def from_json(cls, stored: Mapping) -> "SourceInfo":
        """Read the output of ``to_json``."""
        features, names = spec_from_json(stored["features"]), tuple(stored["label_names"])
        limits = tuple(stored["value_range"])
        return cls(**{**stored, "features": features, "label_names": names, "value_range": limits})

    def to_json(self) -> dict:
        """Plain JSON data, equal for equal infos."""
        lists = {"label_names": list(self.label_names), "value_range": list(self.value_range)}
        return {**vars(self), "features": spec_to_json(self.features), **lists}

    def cut(self, sequence_length: int) -> "SourceInfo":
        """The source as records contain it: a text in examples of ``sequence_length`` + 1 tokens.

        Raises:
            SettingsError: a split is too short for one example.
        """
        if TOKENS not in self.features:
            return self
        counts = {split: (tokens - 1) // sequence_length for split, tokens in self.num_examples.items()}
        for split, count in counts.items():
            if count < 1:
                refuse(
                    *("Records", "sequence_length"),
                    f"less than the {self.num_examples[split]:,} characters of the {split} split",
                    sequence_length,
                )
        return replace(self, features=text_spec(sequence_length + 1), num_examples=counts)


@dataclass(frozen=True, kw_only=True)
class Location:
    """Place of a source on this machine; no part of any identity.

    ``folder`` contains single image files and ``listing`` is their index. ``artefact`` is the source's artifact.
    """

    tfds_data_dir: str = ""
    folder: str = ""
    listing: str = ""
    artefact: str = ""


class Kind:
    """A kind of source, as the settings request it. Its module imports libraries where it uses them."""

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def name(self) -> str:
        """Name of the dataset."""
        return self.settings.dataset

    def is_at_hand(self) -> bool:
        """Whether the data are on this machine."""
        return True

    def location(self, artifact: Path) -> Location:
        """Where the data are; ``artifact`` is the folder of the source's artifact."""
        return Location(artefact=str(artifact))

    def availability(self) -> str:
        """Describe how the data would be obtained, without a change. Raises as ``find`` before a download."""
        raise NotImplementedError

    def find(self, artifact: Path | None) -> SourceInfo:
        """Obtain and examine the data.

        Args:
            artifact: folder for the index of the files and the tokens of a text, if wanted.

        Raises:
            DatasetUnavailableError: the data cannot be downloaded.
            SettingsError: there are no usable data at the path, or the dataset is unknown.
            DamagedArtefactError: images cannot be decoded, or a download has another digest.
        """
        raise NotImplementedError

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each difference between the data and the artifact with this JSON of ``SourceInfo``.

        Raises:
            SettingsError: there are no usable data at the path any more.
        """
        return iter(())


def kind_of(settings: SourceSettings) -> Kind:
    """The kind of source that ``settings`` request."""
    if settings.origin == PLACEHOLDER:
        return placeholder_of(settings)
    return dataset_of(settings)


def dataset_of(settings: SourceSettings) -> Kind:
    """The same, whether or not a placeholder is requested in its place."""
    return _imported(KINDS[settings.dataset if settings.has_path else TFDS])(settings)


def placeholder_of(settings: SourceSettings) -> Kind:
    """The placeholder of the requested dataset."""
    return _imported(KINDS[SYNTHETIC_TEXT if settings.dataset in TEXTS else SYNTHETIC])(settings)


def _imported(place: str) -> Callable:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def resolve(settings: SourceSettings, folder: Path | None = None) -> SourceInfo:
    """Obtain the dataset that ``settings`` request, or its placeholder if that is allowed. See ``Kind.find``."""
    try:
        return kind_of(settings).find(folder)
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        _logger.warning(
            "%s is unavailable: %s\nGoing on with the STAND-IN dataset: generated, not %s. "
            "Its figures say nothing about %s. The next run tries the real source again.",
            *(settings.dataset, error, settings.dataset, settings.dataset),
        )
        return placeholder_of(settings).find(folder)


@message
def _unavailable(error: Exception) -> str:
    return f"unavailable, a run takes the placeholder: {error}"


def availability(settings: SourceSettings) -> str:
    """Describe how the dataset would be obtained, without a change. Raises as ``resolve`` before a download."""
    try:
        return kind_of(settings).availability()
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        return _unavailable(error)


def read_batches(
    info: SourceInfo, location: Location, form: ImageForm | None, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Read the examples ``start`` to ``stop - 1`` of a split in the source's order, a few hundred at a time.

    A text is read as ``SourceInfo.cut`` cuts it, and ``form`` is None.

    Yields:
        By feature: images, uint8 (batch, height, width, channels) if stored raw, else a list of encoded images; int64
        labels (batch,); uint8 tokens (batch, length).

    Raises:
        DatasetUnavailableError: the prepared copy is missing and cannot be prepared again.
        DamagedArtefactError: the data are of another version, have changed, or cannot be read to the end.
        UnsupportedDatasetError: an example has no label.
    """
    read = _imported(READERS["text" if TOKENS in info.features else info.origin])
    return read(info, location, form, split, start, stop)


def example_keys(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """The keys of a split in the source's order, from the index if there is one."""
    return read_index(listing).splits[split].keys if listing else IndexKeys(split, num_examples)


def example_names(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """Names of the examples for people: paths below the source's folder, else the keys."""
    return read_index(listing).splits[split].paths if listing else IndexKeys(split, num_examples)


@dataclass(frozen=True)
class IndexKeys(Sequence[str]):
    """Keys of examples without names. Each is made when it is used, as there may be a billion."""

    split: str
    num_examples: int

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, which: int | slice) -> str | list[str]:
        found = range(self.num_examples)[which]
        return index_key(self.split, found) if isinstance(found, int) else [index_key(self.split, at) for at in found]

    def __iter__(self) -> Iterator[str]:
        return (index_key(self.split, index) for index in range(self.num_examples))
