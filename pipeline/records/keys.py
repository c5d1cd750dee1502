"""Keys, which are stable IDs of examples, and the division of the train split.

``test_share`` of the examples of the source's train split becomes the test split if the source has none.
``validation_share`` of the remaining examples becomes the validation split. A hash of the key decides, independent of
the seed. A larger test share contains a smaller one.
"""

import hashlib
from collections.abc import Hashable, Sequence

SPLITS = ("train", "validation", "test")

INDEX_DIGITS = 9


def index_key(split: str, index: int) -> str:
    """The key of an example without a name, from its index in a split of the source."""
    return f"{split}-{index:0{INDEX_DIGITS}d}"


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
