"""Division of the source's splits into those of the records. Needs neither NumPy nor TensorFlow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pipeline.config.refusal import refuse
from pipeline.records.features import TOKENS
from pipeline.records.keys import SPLITS, split_of, splits_by_place
from pipeline.sources.source import Location, SourceInfo, example_keys


@dataclass(frozen=True)
class Division:
    """A split of the source and its shares. Hashable, so that the split of each example is computed once per process.

    ``digest`` is the source's, because another listing may replace the one at this path. ``by_place``: the split is
    divided by the places of its examples, not by the hashes of their keys.
    """

    split: str
    num_examples: int
    listing: str
    test_share: float
    validation_share: float
    digest: str
    by_place: bool = False

    @classmethod
    def of(cls, source: SourceInfo, location: Location, split: str, validation_share: float) -> "Division":
        """The division of a split. Only train is divided."""
        shares = (source.test_share, validation_share) if split == "train" else (0.0, 0.0)
        by_place = TOKENS in source.features
        return cls(split, source.num_examples[split], location.listing, *shares, source.digest, by_place)

    def all_keys(self) -> Sequence[str]:
        """The keys of the split, in the source's order."""
        return example_keys(self.split, self.num_examples, self.listing)

    def split_of_each(self) -> Sequence[str]:
        """The split of the records of each example."""
        return _split_of_each(self)


def divided(source: SourceInfo, validation_share: float) -> dict[str, tuple[str, ...]]:
    """Split of the source → the splits of the records that it is divided into.

    Raises:
        SettingsError: a share is requested, and the source has a validation split of its own.
    """
    if validation_share and "validation" in source.num_examples:
        refuse("Records", "validation_share", "0, as the dataset has a validation split of its own", validation_share)
    parts = {split: (split,) for split in source.num_examples}
    parts["train"] = ("train",) + ("validation",) * bool(validation_share) + ("test",) * bool(source.test_share)
    return parts


def split_sizes(source: SourceInfo, location: Location, validation_share: float) -> dict[str, int]:
    """Split of the records → number of examples.

    Raises:
        SettingsError: a share leaves a split without an example.
    """
    sizes: dict[str, int] = {}
    for source_split, splits in divided(source, validation_share).items():
        num_examples = source.num_examples[source_split]
        if splits == (source_split,):
            sizes[source_split] = num_examples
            continue
        found = Division.of(source, location, source_split, validation_share).split_of_each()
        sizes |= {split: found.count(split) for split in splits}
        if empty := [split for split in splits if not sizes[split]]:
            by_test = "test" in empty or not validation_share
            section, name = ("Source", "test_share") if by_test else ("Records", "validation_share")
            refuse(
                section,
                name,
                f"a share of {num_examples} examples that leaves some to {' and some to '.join(splits)}",
                source.test_share if by_test else validation_share,
            )
    return {split: sizes[split] for split in SPLITS if split in sizes}


@cache
def _split_of_each(division: Division) -> Sequence[str]:
    shares: Mapping[str, float] = {"test_share": division.test_share, "validation_share": division.validation_share}
    if not any(shares.values()):
        return [division.split] * division.num_examples
    if division.by_place:
        return splits_by_place(division.num_examples, **shares)
    return [split_of(key, **shares) for key in division.all_keys()]
