"""Plan: which examples of the source go where, known before anything is read (the shards' aid)."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pipeline.config.data import RecordsSettings
from pipeline.errors import DamagedArtefactError
from pipeline.records.features import FeatureSpec, is_fixed
from pipeline.records.fixed import FixedLayout
from pipeline.records.form import ImageForm, stored_form, stored_spec
from pipeline.records.keys import SPLITS
from pipeline.shards import words
from pipeline.shards.order import example_places, shard_bounds
from pipeline.shards.shared import Shared
from pipeline.shards.splits import Division, divided
from pipeline.shards.tfds_metadata import shard_name
from pipeline.sources import Location, SourceInfo, example_keys

#: Of what blocks noted, and of where their examples go.
NOTES, PLACES = "blocks", "places"
_SEAL_BYTES = 16
# A store takes its time.
_AT_ONCE = 16


@dataclass(frozen=True)
class Job:
    """What every step of the Beam job needs to know; small, and plain data, so that any runner can ship it.

    ``num_examples``: split of the records → number of examples.
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
        """In what form images are stored; None where the source has none."""
        return stored_form(self.source.features, self.settings, self.source.smallest_side)

    @property
    def spec(self) -> FeatureSpec:
        """The feature spec of the records."""
        return stored_spec(self.source.features, self.form)

    @property
    def is_fixed(self) -> bool:
        """Whether all records of a split have one length."""
        return is_fixed(self.spec)

    def blocks(self, *source_splits: str) -> list[tuple[str, int]]:
        """Split of the source and first example of each block, of all of its splits or of these."""
        return [
            (split, start)
            for split in source_splits or self.source.num_examples
            for start in range(0, self.source.num_examples[split], self.block_examples)
        ]

    def stop(self, block: tuple[str, int]) -> int:
        """One past the last example of a block."""
        split, start = block
        return min(start + self.block_examples, self.source.num_examples[split])

    def splits(self) -> tuple[str, ...]:
        """The splits of the records."""
        found = {split for source_split in self.source.num_examples for split in self.splits_of(source_split)}
        return tuple(split for split in SPLITS if split in found)

    def splits_of(self, source_split: str) -> tuple[str, ...]:
        """The splits of the records that a split of the source is divided among."""
        return divided(self.source, self.settings.validation_share)[source_split]

    def shards(self, *splits: str) -> list[dict]:
        """Name, split, index and number of records of each shard, in order."""
        return [
            {
                "name": shard_name(self.source.dataset, split, shard_index, self.num_shards(split)),
                "split": split,
                "shard_index": shard_index,
                "num_records": stop - first,
            }
            for split in splits
            for shard_index, (first, stop) in enumerate(shard_bounds(self.num_examples[split], self.num_shards(split)))
        ]

    def num_shards(self, split: str) -> int:
        """The number of TFRecord files of a split; validation, which is read as test is, has as many."""
        return self.settings.train_shards if split == "train" else self.settings.test_shards

    def leave_places(self) -> None:
        """Compute where each example goes, and leave each block's part where its worker finds it.

        Once, by the process that submits the job: the order of all examples takes memory and time for each of them.
        """
        for source_split in self.source.num_examples:
            num_shards = {split: self.num_shards(split) for split in self.splits_of(source_split)}
            division = Division.of(self.source, self.location, source_split, self.settings.validation_share)
            places = example_places(division.all_keys(), division.split_of_each(), num_shards, self.settings.seed)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for _ in pool.map(partial(self._leave_places, places), self.blocks(source_split)):
                    pass

    def _leave_places(self, places: np.ndarray, block: tuple[str, int]) -> None:
        content = places[block[1] : self.stop(block)].astype("<i8").tobytes()
        self.shared.write(_places_name(block), self._seal(block, content) + content)

    def places(self, block: tuple[str, int]) -> np.ndarray:
        """Shard and place of each example of a block, as ``example_places`` gives them: int64 (examples, 2).

        Raises:
            DamagedArtefactError: they are not those that this job left.
        """
        name = _places_name(block)
        stored = self.shared.read(name)
        seal, content = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(block, content)):
            raise DamagedArtefactError(words.not_our_places(f"{self.shared}/{name}"))
        return np.frombuffer(content, "<i8").reshape(-1, 2)

    def _seal(self, block: tuple[str, int], content: bytes) -> bytes:
        """What only who has the job can write: others may write where it leaves its files."""
        return hashlib.blake2b(_file_name(block).encode() + content, digest_size=_SEAL_BYTES, key=self.secret).digest()

    def keys(self, source_split: str) -> Sequence[str]:
        """The keys of a split of the source, in its order."""
        return example_keys(source_split, self.source.num_examples[source_split], self.location.listing)

    def key_bytes(self, source_split: str) -> int:
        """The length of a key, which all of a split have."""
        return len(self.keys(source_split)[0].encode())

    def layout(self, source_split: str) -> FixedLayout:
        """How the records lie in their files where they have one length."""
        return FixedLayout(self.spec, len(self.source.label_names), self.key_bytes(source_split))

    def frame_bytes(self, source_split: str) -> int:
        """The length of a framed record where they have one length."""
        return self.layout(source_split).frame_bytes

    def note_name(self, block: tuple[str, int]) -> str:
        """Under which a block notes what it found of its examples."""
        return f"{NOTES}/{_file_name(block)}.json"


def _places_name(block: tuple[str, int]) -> str:
    return f"{PLACES}/{_file_name(block)}.int64"


def _file_name(block: tuple[str, int]) -> str:
    split, start = block
    return f"{split}-{start:012d}"
