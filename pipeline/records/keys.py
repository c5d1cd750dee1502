"""Keys, which are stable IDs of examples, and the division of the train split by key.

A hash of the key assigns each example of the source's train split to a split of the records. ``test_share`` of the
examples becomes the test split if the source has none. ``validation_share`` of the remaining examples becomes the
validation split. New examples move no other example. A larger share contains a smaller one. A text is divided by
position instead.
"""

import hashlib

SPLITS = ("train", "validation", "test")

INDEX_DIGITS = 9


def index_key(split: str, index: int) -> str:
    """The key of an example without a name, from its index in a split of the source."""
    return f"{split}-{index:0{INDEX_DIGITS}d}"


def split_of(key: str, *, test_share: float, validation_share: float) -> str:
    """The split of the records for an example of the source's train split."""
    if test_share and _is_below(key, test_share, b"test"):
        return "test"
    if validation_share and _is_below(key, validation_share, b"validation"):
        return "validation"
    return "train"


def splits_by_position(num_examples: int, *, test_share: float, validation_share: float) -> list[str]:
    """The splits of the examples of a text, in order. The last examples are test, those before them validation.

    Adjacent examples share their context. A hash of the key would put some of them into different splits.
    """
    test = int(num_examples * test_share)
    validation = int((num_examples - test) * validation_share)
    return ["train"] * (num_examples - test - validation) + ["validation"] * validation + ["test"] * test


def _is_below(key: str, share: float, purpose: bytes) -> bool:
    digest = hashlib.blake2b(key.encode(), digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "little") < share * 2**64
