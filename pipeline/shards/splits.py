"""Division of the splits of the source into the splits of the records."""

from collections.abc import Sequence

from pipeline.records.keys import SPLITS, split_of, splits_by_group, splits_by_label, splits_by_position
from pipeline.settings.setting_error import refuse
from pipeline.sources.files import example_keys, read_index
from pipeline.sources.source import Location, SourceInfo


def divided(source: SourceInfo, validation_share: float) -> dict[str, tuple[str, ...]]:
    """The splits of the records for each split of the source."""
    if validation_share and "validation" in source.num_examples:
        refuse("Records", "validation_share", "0, because the dataset has a validation split", validation_share)
    splits = {split: (split,) for split in source.num_examples}
    splits["train"] = ("train",) + ("validation",) * bool(validation_share) + ("test",) * bool(source.test_share)
    return splits


def split_sizes(source: SourceInfo, location: Location, validation_share: float) -> dict[str, int]:
    """Number of examples of each split of the records. SettingsError: a share leaves a split without examples."""
    sizes: dict[str, int] = {}
    for source_split, splits in divided(source, validation_share).items():
        num_examples = source.num_examples[source_split]
        if splits == (source_split,):
            sizes[source_split] = num_examples
            continue
        split_of = split_of_each(source, location, source_split, validation_share)
        sizes |= {split: split_of.count(split) for split in splits}
        if empty := [split for split in splits if not sizes[split]]:
            by_test = "test" in empty or not validation_share
            grouped = division(source, location) == "group"
            refuse(
                *(("Source", "test_share") if by_test else ("Records", "validation_share")),
                f"a share of {num_examples} examples that leaves some to {' and some to '.join(splits)}",
                source.test_share if by_test else validation_share,
                " The groups of [Source] group_column are too few." if grouped else "",
            )
    return {split: sizes[split] for split in SPLITS if split in sizes}


def division(source: SourceInfo, location: Location) -> str:
    """The method that divides the train split, which is "position", "group", "label" or "key"."""
    # A text is divided by position.
    if source.is_sequence:
        return "position"
    # Without an index, labels are unknown until the examples are read.
    train = read_index(location.listing).splits["train"] if location.listing else None
    if train and train.groups:
        return "group"
    # Several labels or numbers of an example have no shares that the splits could keep.
    return "label" if train and train.labels and isinstance(train.labels[0], int) else "key"


def split_of_each(source: SourceInfo, location: Location, split: str, validation_share: float) -> Sequence[str]:
    """The split of the records of each example of a split of the source. Only train is divided."""
    num_examples, listing = source.num_examples[split], location.listing
    if split != "train" or not (source.test_share or validation_share):
        return [split] * num_examples
    shares = {"test_share": source.test_share, "validation_share": validation_share}
    keys = example_keys(split, num_examples, listing)
    match division(source, location):
        case "position":
            return splits_by_position(num_examples, **shares)
        case "group":
            return splits_by_group(read_index(listing).splits[split].groups, **shares)
        case "label":
            return splits_by_label(keys, read_index(listing).splits[split].labels, **shares)
    return [split_of(key, **shares) for key in keys]
