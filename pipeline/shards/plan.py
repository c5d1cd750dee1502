"""The plan of a job, which contains its blocks, its shards and the position of each example.

The plan needs no example to be read, because a position depends only on the seed and the example's key.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.records.example import FixedLayout
from pipeline.records.features import FeatureSpec, ImageForm, is_fixed, stored_form, stored_spec
from pipeline.settings.data import RecordsSettings
from pipeline.shards.shared import Shared
from pipeline.shards.splits import divided, split_of_each
from pipeline.sources.files import example_keys
from pipeline.sources.source import Location, SourceInfo

#: A split of the source, and the start and stop index of the block's examples. An element of the Beam job.
Block = tuple[str, int, int]

#: Folders of the statistics of blocks, and of the positions of all examples.
BLOCK_STATS, POSITIONS = "blocks", "places"
# Bytes of an example's position.
_POSITION_BYTES = 16


@dataclass(frozen=True)
class Job:
    """The argument of every step of the Beam job. It is small plain data that any runner can send to its workers.

    All workers share ``shared``. ``num_examples`` is that of each split of the records, in order.
    """

    source: SourceInfo
    location: Location
    settings: RecordsSettings
    folder: str
    shared: Shared
    block_examples: int
    num_examples: Mapping[str, int]

    @property
    def form(self) -> ImageForm | None:
        """The form of the images in the records. None for a text."""
        return stored_form(self.source.features, self.settings, self.source.shorter_sides)

    @property
    def spec(self) -> FeatureSpec:
        """The feature spec of the records."""
        return stored_spec(self.source.features, self.form)

    @property
    def is_fixed(self) -> bool:
        """Whether all records of a split have the same length."""
        return is_fixed(self.spec)

    def blocks(self, *source_splits: str) -> list[Block]:
        """The blocks of these splits of the source. The default is all splits."""
        return [
            (split, start, min(start + self.block_examples, self.source.num_examples[split]))
            for split in source_splits or self.source.num_examples
            for start in range(0, self.source.num_examples[split], self.block_examples)
        ]

    def splits_of(self, source_split: str) -> tuple[str, ...]:
        """The splits of the records for a split of the source."""
        return divided(self.source, self.settings.validation_share)[source_split]

    def shards(self, *splits: str) -> list[dict]:
        """Name, split, index and number of records of each shard of these splits. The default is all splits.

        TFDS requires names such as ``cifar10-train.tfrecord-00003-of-00016``.
        """
        shards, dataset = [], self.source.dataset.split("/")[0]
        for split in splits or self.num_examples:
            bounds = shard_bounds(self.num_examples[split], self.num_shards(split))
            for index, (start, stop) in enumerate(bounds):
                name = f"{dataset}-{split}.tfrecord-{index:05d}-of-{len(bounds):05d}"
                shards.append({"name": name, "split": split, "shard_index": index, "num_records": stop - start})
        return shards

    def shards_of(self, source_split: str) -> list[dict]:
        """The shards for a split of the source, in the order of the shard numbers of ``positions``."""
        return self.shards(*self.splits_of(source_split))

    def num_shards(self, split: str) -> int:
        """Number of TFRecord files of a split. The validation split has as many as the test split."""
        return self.settings.train_shards if split == "train" else self.settings.test_shards

    def write_positions(self) -> None:
        """Write the position of each example for the workers. It takes memory and time for every example."""
        for source_split in self.source.num_examples:
            num_shards = {split: self.num_shards(split) for split in self.splits_of(source_split)}
            splits = split_of_each(self.source, self.location, source_split, self.settings.validation_share)
            positions = example_positions(self.keys(source_split), splits, num_shards, self.settings.seed)
            self.shared.write(f"{POSITIONS}/{source_split}", positions.astype("<i8", copy=False).tobytes())

    def positions(self, block: Block) -> np.ndarray:
        """Read the shard and position of each example of a block, int64 (examples, 2). See ``example_positions``."""
        split, start, stop = block
        name, length = f"{POSITIONS}/{split}", _POSITION_BYTES * (stop - start)
        return np.frombuffer(self.shared.read_range(name, _POSITION_BYTES * start, length), "<i8").reshape(-1, 2)

    def keys(self, source_split: str) -> Sequence[str]:
        """The keys of a split of the source, in its order."""
        return example_keys(source_split, self.source.num_examples[source_split], self.location.listing)

    def layout(self, source_split: str) -> FixedLayout:
        """The layout of the records, if all have the same length."""
        return FixedLayout(self.spec, len(self.source.label_names), len(self.keys(source_split)[0].encode()))


def block_file(folder: str, block: Block) -> str:
    """Name of a block's file in a folder of the shared storage."""
    return f"{folder}/{block[0]}-{block[1]:012d}"


def example_order(keys: Sequence[str], seed: int) -> np.ndarray:
    """Shuffle keys by a seed. Returns the index of the key at each position, int64.

    The order is that of a keyed hash, which is the same in every version of NumPy.
    """
    hash_key = seed.to_bytes(8, "little")
    digests = (hashlib.blake2b(key.encode(), digest_size=8, key=hash_key).digest() for key in keys)
    # One by one, because all digests together would take six times the memory.
    ranks = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(keys))
    return np.argsort(ranks, kind="stable")


def shard_bounds(num_examples: int, num_shards: int) -> list[tuple[int, int]]:
    """(start, stop) position of each shard. Sizes differ by at most one."""
    cuts = [shard * num_examples // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(cuts))


def example_positions(
    keys: Sequence[str], split_of: Sequence[str], num_shards: Mapping[str, int], seed: int
) -> np.ndarray:
    """The positions of all examples of a split of the source, int64 (keys, 2), from the split of each in the records.

    A position is the number of the shard, counted through all splits, and the index among its records.
    """
    order = example_order(keys, seed)
    # As numbers, because the names of a billion splits would take forty gigabytes.
    numbers = {split: number for number, split in enumerate(num_shards)}
    splits = np.fromiter(map(numbers.__getitem__, split_of), np.uint8, len(keys))[order]
    positions = np.empty((len(keys), 2), np.int64)
    shard = 0
    for split, number in num_shards.items():
        members = order[splits == numbers[split]]
        for start, stop in shard_bounds(len(members), number):
            positions[members[start:stop], 0] = shard
            positions[members[start:stop], 1] = np.arange(stop - start)
            shard += 1
    return positions
