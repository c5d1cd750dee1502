"""Keys: the stable id of an example, and what follows from it alone (the records' and shards' aid).

``train`` can give a share of its examples to a third split, ``validation``, which choices are made on so that ``test``
is left for what is reported. Which ones is decided example by example, by a hash of the key: neither the seed nor the
other examples have a say, and a larger share holds all that a smaller one does.

The standard library alone: how large a split will be can be asked without TensorFlow.
"""

import hashlib
from collections.abc import Mapping
from functools import cache

from pipeline.config import refuse

INDEX_DIGITS = 9


def example_key(split: str, index: int) -> str:
    """The stable id of the ``index``-th example of a split in the source's own order.

    An example of the validation split is one of the source's train split, and keeps its key.
    """
    return f"{source_split(split)}-{index:0{INDEX_DIGITS}d}"


def source_split(split: str) -> str:
    """The split of the source that the examples of ``split`` come from."""
    return "train" if split == "validation" else split


def is_held_out(key: str, validation_share: float) -> bool:
    """Whether an example of the source's train split belongs to validation."""
    digest = hashlib.blake2b(key.encode(), digest_size=8, person=b"validation").digest()
    return int.from_bytes(digest, "little") < validation_share * 2**64


def split_sizes(num_examples: Mapping[str, int], validation_share: float) -> dict[str, int]:
    """Split of the records → number of examples, given those of the source; validation only where there is a share.

    Raises:
        SettingsError: the share leaves train or validation without an example.
    """
    if not validation_share:
        return dict(num_examples)
    held_out = _num_held_out(num_examples["train"], validation_share)
    sizes = {"train": num_examples["train"] - held_out, "validation": held_out, "test": num_examples["test"]}
    if not (sizes["train"] and sizes["validation"]):
        refuse(
            "Records",
            "validation_share",
            f"a share of {num_examples['train']} examples that leaves some to train and some to validation",
            validation_share,
        )
    return sizes


@cache
def _num_held_out(num_examples: int, validation_share: float) -> int:
    return sum(is_held_out(example_key("train", index), validation_share) for index in range(num_examples))
