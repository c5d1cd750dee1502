"""The protocol, registry and description of sources. Importing this module needs only the standard library."""

import logging
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from pipeline.errors import DatasetUnavailableError, message, refuse
from pipeline.records.features import (
    LABEL,
    TEXT,
    FeatureSpec,
    ImageForm,
    ShorterSides,
    content_name,
    spec_from_json,
    spec_to_json,
)
from pipeline.registry import Registry
from pipeline.settings.data import FULL_RANGE, PLACEHOLDER, RecordsSettings, SourceSettings

_logger = logging.getLogger(__name__)

TFDS, SYNTHETIC = "tfds", "synthetic"
#: Origin → the class of its kind. A kind from outside is the dataset that has its name.
SOURCES = Registry(
    "sources",
    {
        TFDS: "pipeline.sources.tfds:Tfds",
        "parquet": "pipeline.sources.containers.parquet:Parquet",
        "webdataset": "pipeline.sources.containers.webdataset:WebDataset",
        "tfrecord": "pipeline.sources.containers.tfrecord:TFRecord",
        "npz": "pipeline.sources.containers.npz:Npz",
        "folder": "pipeline.sources.image_folder:ImageFolder",
        "text_table": "pipeline.sources.text:TextTable",
        "table": "pipeline.sources.table:Table",
        "text_folder": "pipeline.sources.text:TextFolder",
        "text": "pipeline.sources.text:Text",
        SYNTHETIC: "pipeline.sources.placeholder:Placeholder",
    },
)


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """Contents of a source, independent of its path."""

    dataset: str
    #: Key of ``SOURCES``.
    origin: str
    version: str
    #: Feature spec, with the image encoding of the source.
    features: FeatureSpec
    #: Key of ``problems.PROBLEMS``.
    problem: str = "image_classification"
    #: Labels, or the vocabulary of a text.
    label_names: tuple[str, ...]
    #: Number of examples per split, or of tokens for a text.
    num_examples: Mapping[str, int]
    #: Share of train that becomes the test split, if the source has none.
    test_share: float = 0.0
    #: Stored bytes, approximately.
    bytes_per_example: int = 0
    shorter_sides: ShorterSides = (0, 0, 0)
    #: Number of images by the binary logarithm of their shorter sides, rounded down.
    side_counts: Mapping[str, int] = field(default_factory=dict)
    #: Number of skipped files by reason.
    skipped: Mapping[str, int] = field(default_factory=dict)
    #: Values of 16-bit images that become black and white.
    value_range: tuple[int, int] = FULL_RANGE
    #: Folder of a prepared TFDS dataset below that of all datasets.
    prepared_as: str = ""
    #: Identifies the contents of a source. Empty for a placeholder.
    digest: str = ""

    @classmethod
    def from_json(cls, stored: Mapping) -> "SourceInfo":
        """Read the output of ``to_json``."""
        lists = {name: tuple(stored[name]) for name in ("label_names", "value_range", "shorter_sides")}
        return cls(**{**stored, "features": spec_from_json(stored["features"]), **lists})

    def to_json(self) -> dict:
        """JSON data, equal for equal infos."""
        return {**vars(self), "features": spec_to_json(self.features)}

    @property
    def is_sequence(self) -> bool:
        """Whether the examples are windows of one long sequence. Each value except the first is then a label."""
        return LABEL not in self.features and len(self.features[content_name(self.features)].shape) == 1

    def cut(self, settings: RecordsSettings) -> "SourceInfo":
        """Cut a text into examples of ``sequence_length`` + 1 tokens, and labeled texts to ``text_length`` bytes.

        SettingsError: a split is too short for one example.
        """
        size, counts, name = settings.sequence_length, {**self.num_examples}, content_name(self.features)
        if not self.is_sequence and name != TEXT:
            return self
        for split, tokens in counts.items() if self.is_sequence else ():
            if tokens <= size:
                refuse("Records", "sequence_length", f"fewer than the {tokens:,} characters of the {split} split", size)
            counts[split] = (tokens - 1) // size
        shape = (size + 1,) if self.is_sequence else (min(*self.features[TEXT].shape, settings.text_length),)
        features = {**self.features, name: replace(self.features[name], shape=shape)}
        return replace(self, features=features, num_examples=counts)


@dataclass(frozen=True, kw_only=True)
class Location:
    """Paths of a source on this machine, in no identity. ``listing`` is the index of the files below ``folder``."""

    tfds_data_dir: str = ""
    folder: str = ""
    listing: str = ""
    artifact: str = ""


class Kind(ABC):
    """A kind of source. Its module imports libraries only where it uses them."""

    #: ``module:function`` that reads a range of a split, see ``read_batches``.
    reader: ClassVar[str]
    #: Regular expression for the names of its files, in lower case.
    file_names: ClassVar[str] = r"(?!)"

    def __init__(self, settings: SourceSettings) -> None:
        self.settings = settings

    def name(self) -> str:
        """Name of the dataset."""
        return self.settings.dataset

    def is_at_hand(self) -> bool:
        """Whether the data are on this machine."""
        return True

    def location(self, artifact: Path) -> Location:
        """Paths of the data. ``artifact`` is the folder of the source's artifact."""
        return Location(artifact=str(artifact))

    @classmethod
    def has_name(cls, path: str) -> bool:
        """Whether a file of this kind may have this path."""
        return re.fullmatch(cls.file_names, path.rpartition("/")[2].lower()) is not None

    @classmethod
    def has_file(cls, path: Path) -> bool:
        """Whether a file is of this kind, by its name or its first bytes."""
        return cls.has_name(path.name)

    @abstractmethod
    def check(self) -> None:
        """Raise the errors of ``find`` without a change. If a download is needed, only check the hosts."""

    @abstractmethod
    def find(self, artifact: Path) -> SourceInfo:
        """Obtain and examine the data. ``artifact`` is the folder for the index of the files and the tokens of a text.

        DatasetUnavailableError: the data cannot be downloaded. SettingsError: the path contains no usable data, or the
        dataset is unknown. DamagedArtifactError: images cannot be decoded, or a download has another digest.
        """

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe each difference between the data and the artifact with this JSON of ``SourceInfo``.

        SettingsError: the path no longer contains usable data.
        """
        return iter(())


def kind_of(settings: SourceSettings) -> Kind:
    """The kind of source that ``settings`` request."""
    return SOURCES.load(SYNTHETIC)(settings) if settings.origin == PLACEHOLDER else dataset_of(settings)


def dataset_of(settings: SourceSettings) -> Kind:
    """Like ``kind_of``, but ignore a requested placeholder."""
    is_kind = settings.has_path or SOURCES.is_outside(settings.dataset)
    return SOURCES.load(settings.dataset if is_kind else TFDS)(settings)


def resolve(settings: SourceSettings, folder: Path) -> SourceInfo:
    """Obtain the dataset of the settings, or its placeholder if the settings allow that. See ``Kind.find``."""
    try:
        return kind_of(settings).find(folder)
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        _logger.warning(
            "%s is unavailable. %s Using the placeholder dataset. Its numbers mean nothing. The next run tries again.",
            *(settings.dataset, error),
        )
        return SOURCES.load(SYNTHETIC)(settings).find(folder)


def availability(settings: SourceSettings) -> str:
    """Describe how the dataset would be obtained. Raises the errors of ``resolve`` that come before a download."""
    kind, obstacle = kind_of(settings), None
    try:
        kind.check()
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        obstacle = error
    return _described(kind, obstacle)


@message
def _described(kind: Kind, obstacle: Exception | None) -> str:
    if obstacle:
        return f"unavailable, so a run uses the placeholder dataset. {obstacle}"
    return f"{kind.name()} is available{'' if kind.is_at_hand() else ' for download'}"


def read_batches(
    info: SourceInfo, location: Location, form: ImageForm | None, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Read the examples ``start`` to ``stop - 1`` of a split in the source's order, a few hundred at a time.

    Yields the features of a batch. Raw images are uint8 (batch, height, width, channels), encoded images a list. Labels
    are int64 (batch,), and tokens uint8 (batch, length). A text is read in the examples of ``SourceInfo.cut``, and
    ``form`` is None.

    DatasetUnavailableError: the prepared copy is missing and cannot be prepared again. DamagedArtifactError: the data
    have another version, have changed, or cannot be read completely. UnsupportedDatasetError: an example has no label.
    """
    # The tokens of a text of any origin are in the source's artifact.
    kind = SOURCES.load("text" if info.is_sequence else info.origin)
    return pkgutil.resolve_name(kind.reader)(info, location, form, split, start, stop)
