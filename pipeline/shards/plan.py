"""The plan of a job: its blocks and shards, and the shard and place of each example.

All of it is known before anything is read, because an example's position depends only on the seed and its key.
"""

import hashlib
import hmac
import itertools
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pipeline.errors import DamagedArtifactError
from pipeline.records.example import FixedLayout
from pipeline.records.features import FeatureSpec, ImageForm, is_fixed, stored_form, stored_spec
from pipeline.settings.data import RecordsSettings
from pipeline.shards.shared import Shared
from pipeline.shards.splits import divided, split_of_each
from pipeline.shards.tfds_metadata import shard_name
from pipeline.sources.file_index import example_keys
from pipeline.sources.source import Location, SourceInfo

#: A split of the source, the index of its first example, and one past the last. An element of the Beam job.
Block = tuple[str, int, int]

#: Folders of the notes on blocks and of the places of all examples.
NOTES, PLACES = "blocks", "places"
# Of an example's place, and of the seal before the places of a block.
_PLACE_BYTES, _SEAL_BYTES = 16, 16


@dataclass(frozen=True)
class Job:
    """The argument of every step of the Beam job. Small plain data, so that any runner can ship it.

    ``num_examples``: of each split of the records, in order. ``shared``: storage of all workers. ``secret``: a key.
    """

    source: SourceInfo
    location: Location
    settings: RecordsSettings
    folder: str
    shared: Shared
    block_examples: int
    num_examples: Mapping[str, int]
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)

    @property
    def form(self) -> ImageForm | None:
        """The form of the images in the records; None for a text."""
        return stored_form(self.source.features, self.settings, self.source.smallest_side)

    @property
    def spec(self) -> FeatureSpec:
        """The feature spec of the records."""
        return stored_spec(self.source.features, self.form)

    @property
    def is_fixed(self) -> bool:
        """Whether all records of a split have one length."""
        return is_fixed(self.spec)

    def blocks(self, *source_splits: str) -> list[Block]:
        """The blocks of these splits of the source, by default of all."""
        return [
            (split, start, min(start + self.block_examples, self.source.num_examples[split]))
            for split in source_splits or self.source.num_examples
            for start in range(0, self.source.num_examples[split], self.block_examples)
        ]

    def splits_of(self, source_split: str) -> tuple[str, ...]:
        """The splits of the records that a split of the source is divided into."""
        return divided(self.source, self.settings.validation_share)[source_split]

    def shards(self, *splits: str) -> list[dict]:
        """Name, split, index and number of records of each shard of these splits, by default of all, in order."""
        return [
            {
                "name": shard_name(self.source.dataset, split, shard_index, self.num_shards(split)),
                "split": split,
                "shard_index": shard_index,
                "num_records": stop - first,
            }
            for split in splits or self.num_examples
            for shard_index, (first, stop) in enumerate(shard_bounds(self.num_examples[split], self.num_shards(split)))
        ]

    def shards_of(self, source_split: str) -> list[dict]:
        """The shards that a split of the source is divided into; ``places`` counts them in this order."""
        return self.shards(*self.splits_of(source_split))

    def num_shards(self, split: str) -> int:
        """The number of TFRecord files of a split. Validation has as many as test."""
        return self.settings.train_shards if split == "train" else self.settings.test_shards

    def leave_places(self) -> None:
        """Compute the place of each example, for the workers.

        Called once, by the process that submits the job, because it takes memory and time for every example.
        """
        for source_split in self.source.num_examples:
            num_shards = {split: self.num_shards(split) for split in self.splits_of(source_split)}
            splits = split_of_each(self.source, self.location, source_split, self.settings.validation_share)
            places = example_places(self.keys(source_split), splits, num_shards, self.settings.seed)
            stored = places.astype("<i8", copy=False).reshape(-1).view(np.uint8)
            pieces: list[bytes | np.ndarray] = []
            for block in self.blocks(source_split):
                content = stored[_PLACE_BYTES * block[1] : _PLACE_BYTES * block[2]]
                pieces += [self._seal(block, content), content]
            self.shared.write(f"{PLACES}/{source_split}", b"".join(pieces))

    def places(self, block: Block) -> np.ndarray:
        """Shard and place of each example of a block, from ``example_places``: int64 (examples, 2).

        Raises:
            DamagedArtifactError: another process wrote them.
        """
        split, start, stop = block
        name, seals_before = f"{PLACES}/{split}", start // self.block_examples
        first, length = _PLACE_BYTES * start + _SEAL_BYTES * seals_before, _SEAL_BYTES + _PLACE_BYTES * (stop - start)
        stored = self.shared.read_range(name, first, length)
        seal, content = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(block, content)):
            raise DamagedArtifactError(
                f"{self.shared}/{name}: expected the places that this job left, found something else. "
                "Who else writes there?"
            )
        return np.frombuffer(content, "<i8").reshape(-1, 2)

    def _seal(self, block: Block, content: bytes | np.ndarray) -> bytes:
        # Others may be able to write to the shared storage.
        seal = hashlib.blake2b(block_file(PLACES, block).encode(), digest_size=_SEAL_BYTES, key=self.secret)
        seal.update(content)
        return seal.digest()

    def keys(self, source_split: str) -> Sequence[str]:
        """The keys of a split of the source, in its order."""
        return example_keys(source_split, self.source.num_examples[source_split], self.location.listing)

    def layout(self, source_split: str) -> FixedLayout:
        """The layout of records of one length."""
        return FixedLayout(self.spec, len(self.source.label_names), len(self.keys(source_split)[0].encode()))


def block_file(folder: str, block: Block) -> str:
    """The name of a block's file in a folder of the shared storage."""
    split, start, _ = block
    return f"{folder}/{split}-{start:012d}"


def example_order(keys: Sequence[str], seed: int) -> np.ndarray:
    """The seeded shuffle: int64, the index of the key at each place of a split of the records.

    The order is that of a keyed hash, which stays the same in every version of NumPy.
    """
    hash_key = seed.to_bytes(8, "little")
    digests = (hashlib.blake2b(key.encode(), digest_size=8, key=hash_key).digest() for key in keys)
    # One by one: all digests joined would take six times the memory.
    ranks = np.fromiter((int.from_bytes(digest) for digest in digests), np.uint64, len(keys))
    return np.argsort(ranks, kind="stable")


def shard_bounds(num_examples: int, num_shards: int) -> list[tuple[int, int]]:
    """(first, one past last) place of each shard. Sizes differ by at most one."""
    cuts = [shard * num_examples // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(cuts))


def example_places(
    keys: Sequence[str], split_of: Sequence[str], num_shards: Mapping[str, int], seed: int
) -> np.ndarray:
    """The position of each example of one of the source's splits.

    ``keys``, ``split_of``: key and split of the records of each example. ``num_shards``: number of shards of each of
    these splits. Returns int64 (keys, 2): the shard, counted through all splits, and the place among its records.
    """
    order = example_order(keys, seed)
    # As numbers: the names of a billion splits would take forty gigabytes.
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
