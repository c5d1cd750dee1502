"""Order: key → split, rank, shard and place; pure arithmetic, the same on every machine (the shards' aid)."""

import hashlib
import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np

from pipeline.records.keys import example_key, is_held_out, source_split


@cache
def example_order(split: str, num_examples: int, seed: int, validation_share: float = 0.0) -> np.ndarray:
    """The seeded shuffle: int64, the source's index of the example at each place of a split of the records.

    ``num_examples`` is that of the source's split. Keys are ranked by a keyed hash, not by a random generator's stream:
    the order holds for every version of NumPy.
    """
    hash_key = seed.to_bytes(8, "little")
    indices = _members(split, num_examples, validation_share)
    ranks = b"".join(
        hashlib.blake2b(example_key(split, index).encode(), digest_size=8, key=hash_key).digest()
        for index in indices.tolist()
    )
    return indices[np.argsort(np.frombuffer(ranks, ">u8"), kind="stable")]


def _members(split: str, num_examples: int, validation_share: float) -> np.ndarray:
    """The source's indices of the examples that belong to a split, ascending."""
    indices = np.arange(num_examples)
    if not validation_share or source_split(split) != "train":
        return indices
    keys = (example_key("train", index) for index in range(num_examples))
    held_out = np.fromiter((is_held_out(key, validation_share) for key in keys), bool, num_examples)
    return indices[held_out == (split == "validation")]


def shard_bounds(num_examples: int, num_shards: int) -> list[tuple[int, int]]:
    """(first, one past last) place of each shard; sizes differ by one at the most."""
    cuts = [shard * num_examples // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(cuts))


@cache
def example_places(
    splits: Sequence[tuple[str, int]], num_examples: int, seed: int, validation_share: float
) -> np.ndarray:
    """Where each example of one of the source's splits goes.

    Args:
        splits: the splits of the records that it is divided among, each with its number of shards.
        num_examples: of the source's split.
        seed: of the order.
        validation_share: of train.

    Returns:
        int64 (num_examples, 2): a shard, counted through all of ``splits``, and the place among its records.
    """
    places = np.empty((num_examples, 2), np.int64)
    shard = 0
    for split, num_shards in splits:
        order = example_order(split, num_examples, seed, validation_share)
        for first, stop in shard_bounds(len(order), num_shards):
            places[order[first:stop], 0] = shard
            places[order[first:stop], 1] = np.arange(stop - first)
            shard += 1
    return places
