"""Order: key → split, rank, shard and place; pure arithmetic, the same on every machine (the shards' aid)."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence

import numpy as np


def ranks(keys: Sequence[str], seed: int) -> np.ndarray:
    """The keyed hash that each key is ordered by: uint64 (keys,).

    Not a random generator's stream: the order holds for every version of NumPy.
    """
    hash_key = seed.to_bytes(8, "little")
    digests = (hashlib.blake2b(key.encode(), digest_size=8, key=hash_key).digest() for key in keys)
    # One by one: a join would hold all of them, six times as large.
    return np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(keys))


def example_order(keys: Sequence[str], seed: int) -> np.ndarray:
    """The seeded shuffle: int64, the index of the key at each place of a split of the records."""
    return np.argsort(ranks(keys, seed), kind="stable")


def shard_bounds(num_examples: int, num_shards: int) -> list[tuple[int, int]]:
    """(first, one past last) place of each shard; sizes differ by one at the most."""
    cuts = [shard * num_examples // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(cuts))


def example_places(
    keys: Sequence[str], split_of: Sequence[str], num_shards: Mapping[str, int], seed: int
) -> np.ndarray:
    """Where each example of one of the source's splits goes.

    Args:
        keys: of its examples, in the source's order.
        split_of: the split of the records that each belongs to.
        num_shards: each of these splits, with its number of shards.
        seed: of the order.

    Returns:
        int64 (keys, 2): a shard, counted through all of ``num_shards``, and the place among its records.
    """
    order = example_order(keys, seed)
    # By number: the names of a billion would be forty gigabytes.
    numbers = {split: number for number, split in enumerate(num_shards)}
    splits = np.fromiter(map(numbers.__getitem__, split_of), np.uint8, len(keys))[order]
    places = np.empty((len(keys), 2), np.int64)
    shard = 0
    for split, number in num_shards.items():
        members = order[splits == numbers[split]]
        for first, stop in shard_bounds(len(members), number):
            places[members[first:stop], 0] = shard
            places[members[first:stop], 1] = np.arange(stop - first)
            shard += 1
    return places
