"""Source: which examples the settings come to, and what a source says of itself (**source** → records → shards → …)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.config.data import FULL_RANGE, PLACEHOLDER, TEXT, TEXTS, SourceSettings
from pipeline.config.refusal import refuse
from pipeline.errors import DatasetUnavailableError
from pipeline.records.features import TOKENS, FeatureSpec, image_spec, spec_from_json, spec_to_json, text_spec
from pipeline.records.keys import index_key
from pipeline.sources import words
from pipeline.sources.found import find
from pipeline.sources.listing import read_listing

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """What a source holds; nothing in it depends on where the source lies.

    ``features`` is the spec of its examples, an image's encoding being the source's own; ``num_examples`` maps each
    split of the source to its number of examples, of a text to that of its tokens; ``label_names`` are what can be
    predicted, labels or tokens (records/vocabulary.py); ``test_share`` is the share of train that becomes the test
    split, where the source has none; ``bytes_per_example`` is about what one takes as it lies there; ``smallest_side``
    the least number of pixels of any image's side, 0 where it is not known; ``skipped`` counts the files that are left
    out as they cannot be used, by reason; ``value_range`` are the values of 16 bits that become black and white. Of a
    prepared dataset ``prepared_as`` is its folder below the one of all datasets. ``digest`` tells a
    source's content from that of another with the same name and version; "" for the stand-in.
    """

    dataset: str
    origin: str
    version: str
    features: FeatureSpec
    label_names: tuple[str, ...]
    num_examples: Mapping[str, int]
    test_share: float = 0.0
    bytes_per_example: int = 0
    smallest_side: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    value_range: tuple[int, int] = FULL_RANGE
    prepared_as: str = ""
    digest: str = ""

    @classmethod
    def from_json(cls, stored: Mapping) -> "SourceInfo":
        """The info that ``to_json`` wrote."""
        features, names = spec_from_json(stored["features"]), tuple(stored["label_names"])
        limits = tuple(stored["value_range"])
        return cls(**{**stored, "features": features, "label_names": names, "value_range": limits})

    def to_json(self) -> dict:
        """Plain JSON data, equal for equal infos."""
        lists = {"label_names": list(self.label_names), "value_range": list(self.value_range)}
        return {**vars(self), "features": spec_to_json(self.features), **lists}

    def cut(self, sequence_length: int) -> "SourceInfo":
        """The source as its records see it: a text in examples of ``sequence_length`` + 1 tokens, others as they are.

        Raises:
            SettingsError: a split of it is too short for one.
        """
        if TOKENS not in self.features:
            return self
        counts = {split: (tokens - 1) // sequence_length for split, tokens in self.num_examples.items()}
        for split, count in counts.items():
            if count < 1:
                expected = words.shorter_than(self.num_examples[split], split)
                refuse("Records", "sequence_length", expected, sequence_length)
        return replace(self, features=text_spec(sequence_length + 1), num_examples=counts)


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a source lies on this machine; no part of any identity.

    ``tfds_data_dir``: [Source] tfds_data_dir. ``folder`` and ``listing``: of images, and the file that lists them.
    ``artefact``: the folder of the source's artefact, which holds a text.
    """

    tfds_data_dir: str = ""
    folder: str = ""
    listing: str = ""
    artefact: str = ""


def example_keys(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """The keys of a split of a source, in its order; from the listing, where there is one."""
    return read_listing(listing).splits[split].keys if listing else IndexKeys(split, num_examples)


def example_names(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """What people know the examples of a split by: their paths below the source's folder, else their keys."""
    return read_listing(listing).splits[split].paths if listing else IndexKeys(split, num_examples)


@dataclass(frozen=True)
class IndexKeys(Sequence[str]):
    """The keys of examples without names of their own, each made when it is asked for: there may be a billion."""

    split: str
    num_examples: int

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, which: int | slice) -> str | list[str]:
        found = range(self.num_examples)[which]
        return index_key(self.split, found) if isinstance(found, int) else [index_key(self.split, at) for at in found]

    def __iter__(self) -> Iterator[str]:
        return (index_key(self.split, index) for index in range(self.num_examples))


def resolve(settings: SourceSettings, folder: Path | None = None) -> SourceInfo:
    """Get the dataset that ``settings`` ask for; downloads and prepares it where it is not prepared already.

    Args:
        settings: what is asked for.
        folder: where the listing of a source of files goes, and a text.

    Raises:
        DatasetUnavailableError: the dataset is unavailable, and the placeholder may not replace it.
        SettingsError, UnsupportedDatasetError: the dataset is unknown, or not image classification.
        DamagedArtefactError: a download's digest is not the expected one, or images cannot be decoded.
    """
    # Here, where it is needed: whether a source is fresh can be asked without the import.
    if settings.origin == PLACEHOLDER:
        return _stand_in(settings, folder)
    if settings.of_files:
        from pipeline.sources import files

        info, listing = files.list_files(settings)
        if folder:
            listing.write(folder)
        return SourceInfo(origin=settings.dataset, **info)
    if settings.dataset == TEXT:
        from pipeline.sources import text

        info, listing, tokens = text.read_text(settings)
        if folder:
            listing.write(folder)
            text.write_tokens(folder, tokens)
        return SourceInfo(origin=TEXT, **info)
    from pipeline.sources import tfds

    try:
        return SourceInfo(origin="tfds", **tfds.prepare(settings, folder))
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        _logger.warning(
            "%s is unavailable: %s\nGoing on with the STAND-IN dataset: generated, not %s. "
            "Its figures say nothing about %s. The next run tries the real source again.",
            *(settings.dataset, error, settings.dataset, settings.dataset),
        )
        return _stand_in(settings, folder)


def availability(settings: SourceSettings) -> str:
    """How the dataset that ``settings`` ask for would be obtained, in words; changes nothing.

    Raises:
        The same as ``resolve``, but for what only a download shows.
    """
    if settings.origin == PLACEHOLDER:
        return words.STAND_IN_REQUESTED
    if settings.dataset == TEXT:
        return words.found_text(settings.path, len(find(settings)[1]))
    if settings.of_files:
        return words.found(settings.path, len(find(settings)[1]))
    from pipeline.sources import tfds

    try:
        return tfds.availability(settings.dataset, settings.tfds_data_dir)
    except DatasetUnavailableError as error:
        if not settings.may_be_replaced:
            raise
        return words.only_stand_in(error)


def _stand_in(settings: SourceSettings, folder: Path | None) -> SourceInfo:
    about = {"dataset": "synthetic", "origin": "synthetic", "version": "1"}
    if settings.dataset in TEXTS:
        from pipeline.sources import synthetic_text, text

        texts = {split: synthetic_text.draw_text(split) for split in synthetic_text.NUM_CHARACTERS}
        info, tokens = text.described(texts, test_share=0.0)
        if folder:
            text.write_tokens(folder, tokens)
        return SourceInfo(**about, **info)
    from pipeline.sources import synthetic

    return SourceInfo(
        **about,
        features=image_spec(synthetic.IMAGE_SHAPE),
        label_names=synthetic.LABEL_NAMES,
        num_examples=synthetic.NUM_EXAMPLES,
    )
