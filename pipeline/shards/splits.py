"""Division of the splits of the source into the splits of the records.

``test_share`` of the examples of the source's train split becomes the test split if the source has none.
``validation_share`` of the remaining examples becomes the validation split. A hash of the key decides, independent of
the seed. A larger test share contains a smaller one.
"""

import hashlib
from collections.abc import Hashable, Sequence

from pipeline.errors import refuse
from pipeline.records.features import SPLITS
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


def split_of(key: str, *, test_share: float, validation_share: float) -> str:
    """The split of an example without a known label. New examples move no other example."""
    if test_share and _hash(key, b"test") < test_share * 2**64:
        return "test"
    if validation_share and _hash(key, b"validation") < validation_share * 2**64:
        return "validation"
    return "train"


def splits_by_label(
    keys: Sequence[str], labels: Sequence[Hashable], *, test_share: float, validation_share: float
) -> list[str]:
    """The splits of examples with labels. Each split gets its share of each label, and at least one example of two.

    The keys with the smallest hashes within a label are test, and then validation. A new example moves no example of
    another label, and at most two of its own.
    """
    splits, members = ["train"] * len(keys), {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    for split, share in (("test", test_share), ("validation", validation_share)):
        hashes = [_hash(key, split.encode()) for key in keys] if share else []
        for label, indices in members.items() if share else ():
            indices.sort(key=hashes.__getitem__)
            count = min(max(1, int(share * len(indices) + 0.5)), len(indices) - 1)
            for index in indices[:count]:
                splits[index] = split
            members[label] = indices[count:]
    return splits


def splits_by_group(groups: Sequence[str], *, test_share: float, validation_share: float) -> list[str]:
    """The splits of examples whose whole group has the same split. The shares are those of the groups."""
    names = [*dict.fromkeys(groups)]
    splits = splits_by_label(names, [""] * len(names), test_share=test_share, validation_share=validation_share)
    return [*map(dict(zip(names, splits, strict=True)).__getitem__, groups)]


def splits_by_position(num_examples: int, *, test_share: float, validation_share: float) -> list[str]:
    """The splits of the examples of a text, in order. The last examples are test, those before them validation.

    Adjacent examples share their context. A hash of the key would put some of them into different splits.
    """
    test = int(num_examples * test_share)
    validation = int((num_examples - test) * validation_share)
    return ["train"] * (num_examples - test - validation) + ["validation"] * validation + ["test"] * test


def _hash(key: str, purpose: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, person=purpose).digest(), "little")
