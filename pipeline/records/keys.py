"""Keys: the stable ID of an example, and the split of the records that follows from it.

A source's train split is divided example by example, by a hash of the key. ``test_share`` becomes the test split if the
source has none, ``validation_share`` of the rest becomes ``validation``. Adding examples moves no other example, and a
larger share contains a smaller one. A text is divided by place instead. Standard library only.
"""

import hashlib

SPLITS = ("train", "validation", "test")

INDEX_DIGITS = 9


def index_key(split: str, index: int) -> str:
    """The key of an example without a name: its index in a split of the source."""
    return f"{split}-{index:0{INDEX_DIGITS}d}"


def split_of(key: str, *, test_share: float, validation_share: float) -> str:
    """The split of the records of an example of the source's train split."""
    if test_share and _below(key, test_share, b"test"):
        return "test"
    if validation_share and _below(key, validation_share, b"validation"):
        return "validation"
    return "train"


def splits_by_place(num_examples: int, *, test_share: float, validation_share: float) -> list[str]:
    """The splits of the examples of a text, in order. Its end becomes test, the part before it validation.

    Neighbors share their context. A hash of the key would put some of them into different splits.
    """
    test = int(num_examples * test_share)
    validation = int((num_examples - test) * validation_share)
    return ["train"] * (num_examples - test - validation) + ["validation"] * validation + ["test"] * test


def _below(key: str, share: float, purpose: bytes) -> bool:
    digest = hashlib.blake2b(key.encode(), digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "little") < share * 2**64
