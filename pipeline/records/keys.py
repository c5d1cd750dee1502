"""Keys: the stable id of an example, and what follows from it alone (the records' and shards' aid).

The train split of the source is divided where the records have more splits than the source: of a source without a test
split ``test_share`` becomes that, and ``validation_share`` of the rest can be held out as ``validation``, which choices
are made on so that ``test`` is left for what is reported. That is decided example by example, by a hash of the key:
neither the seed nor the other examples have a say, so adding examples moves no other, and a larger share holds all that
a smaller one does. A text is divided by place instead.

The standard library alone: how large a split will be can be asked without TensorFlow.
"""

import hashlib

SPLITS = ("train", "validation", "test")

INDEX_DIGITS = 9


def index_key(split: str, index: int) -> str:
    """The key of an example that has no name of its own: its place in a split of the source, in the source's order."""
    return f"{split}-{index:0{INDEX_DIGITS}d}"


def split_of(key: str, *, test_share: float, validation_share: float) -> str:
    """The split of the records that an example of the source's train split belongs to."""
    if test_share and _below(key, test_share, b"test"):
        return "test"
    if validation_share and _below(key, validation_share, b"validation"):
        return "validation"
    return "train"


def splits_by_place(num_examples: int, *, test_share: float, validation_share: float) -> list[str]:
    """The same of all examples of a text, in order: its end becomes test, what is before that validation.

    Neighbours share their context, and by a hash each would have some in another split.
    """
    test = int(num_examples * test_share)
    validation = int((num_examples - test) * validation_share)
    return ["train"] * (num_examples - test - validation) + ["validation"] * validation + ["test"] * test


def _below(key: str, share: float, purpose: bytes) -> bool:
    digest = hashlib.blake2b(key.encode(), digest_size=8, person=purpose).digest()
    return int.from_bytes(digest, "little") < share * 2**64
