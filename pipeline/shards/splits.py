"""Division of the source's splits into those of the records. Needs neither NumPy nor TensorFlow."""

from collections.abc import Sequence
from functools import cache

from pipeline.records.keys import SPLITS, split_of, splits_by_position
from pipeline.settings.setting_error import refuse
from pipeline.sources.file_index import example_keys
from pipeline.sources.source import Location, SourceInfo


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
        found = split_of_each(source, location, source_split, validation_share)
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


def split_of_each(source: SourceInfo, location: Location, split: str, validation_share: float) -> Sequence[str]:
    """The split of the records of each example of a split of the source. Only train is divided."""
    if split != "train" or not (source.test_share or validation_share):
        return [split] * source.num_examples[split]
    shares = source.test_share, validation_share
    # A text is divided by place.
    if source.is_sequence:
        return splits_by_position(source.num_examples[split], test_share=shares[0], validation_share=shares[1])
    return _by_key(split, source.num_examples[split], location.listing, source.digest, *shares)


@cache
def _by_key(
    split: str, num_examples: int, listing: str, digest: str, test_share: float, validation_share: float
) -> Sequence[str]:
    """Computed once per process. The digest belongs to the key, because another listing may replace this one."""
    keys = example_keys(split, num_examples, listing)
    return [split_of(key, test_share=test_share, validation_share=validation_share) for key in keys]
