"""Column stream: batches of a split from memory-mapped files, as NumPy arrays, without TensorFlow.

For JAX, if records have one length. A file is then an array of rows, and features are columns of it. A batch is one
gather. The batches equal those of ``tf_data.py`` from memory.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from pipeline import machine
from pipeline.errors import DamagedArtifactError
from pipeline.records.features import FeatureSpec, ImageForm, is_fixed, spec_from_json
from pipeline.records.rows import Rows

# The most that a stream keeps ahead of the step, in batches and in records from disk.
AHEAD_BYTES = 256 * 2**20
_MOST_BATCHES_AHEAD, _LEAST_BATCHES_AHEAD = 8, 2


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of the first ``size`` numbers, int64, that depends only on (seed, epoch)."""
    # NumPy keeps the bits of Philox the same in all versions.
    bits = np.random.Philox(key=[seed, epoch]).random_raw(size)
    return np.argsort(bits, kind="stable")


@dataclass(frozen=True)
class Split:
    """One split of published records. ``files`` and ``shard_examples``: its shards in order.

    ``decode``: columns of a batch by ``features`` → inputs and labels. ``content_shape``: of a decoded uint8 example,
    such as (height, width, channels). ``form``: of stored images. ``layout``: of records of one length, else None.
    """

    name: str
    files: tuple[str, ...]
    num_examples: int
    features: tuple[str, ...]
    decode: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    content_shape: tuple[int, ...]
    form: ImageForm | None
    spec: FeatureSpec
    predictions_per_example: int
    layout: Rows | None
    shard_examples: tuple[int, ...]

    @classmethod
    def of_manifest(cls, folder: Path, manifest: Mapping, split: str, **contents: Any) -> "Split":
        """The split of the records in ``folder``. ``contents``: the fields of their problem, see ``open_split``."""
        shards = sorted(
            (entry for entry in manifest["files"] if entry.get("split") == split),
            key=lambda entry: entry["shard_index"],
        )
        spec, image = spec_from_json(manifest["feature_spec"]), manifest.get("image")
        return cls(
            name=split,
            files=tuple(str(folder / shard["name"]) for shard in shards),
            num_examples=manifest["splits"][split]["num_examples"],
            form=ImageForm(**{name: image[name] for name in image.keys() - {"shape"}}) if image else None,
            spec=spec,
            layout=Rows.of_manifest(folder, manifest, split) if is_fixed(spec) else None,
            shard_examples=tuple(shard["num_records"] for shard in shards),
            **contents,
        )

    def mapped(self) -> list[np.ndarray]:
        """The shards of records of one length, mapped into memory: uint8 (records, frame_bytes) each."""
        shards, frame_bytes = [], self.layout.frame_bytes
        for file, num_records in zip(self.files, self.shard_examples, strict=True):
            found = Path(file).stat().st_size
            if found != num_records * frame_bytes:
                raise DamagedArtifactError(
                    f"{file}: manifest lists {num_records} records of {frame_bytes} bytes each, found {found} bytes. "
                    'Run "make pipeline" to rebuild it.'
                )
            # An empty file cannot be mapped.
            content = np.memmap(file, np.uint8, mode="r") if num_records else np.empty(0, np.uint8)
            shards.append(np.asarray(content).reshape(num_records, frame_bytes))
        return shards


class ColumnStream:
    """Batches of one split of records of one length. See ``stream.InputStream``."""

    def __init__(self, split: Split, *, global_batch_size: int, seed: int = 0, part: tuple[int, int] = (0, 1)) -> None:
        """Open a split. ``part`` (number, how many) is the part of each batch that ``training`` yields."""
        self.split = split
        self._global_batch_size, self._seed, self._part = global_batch_size, seed, part
        self._shards = split.mapped()
        # The first place of each shard, and the end of the last.
        self._starts = np.cumsum([0, *split.shard_examples])

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one pass over the split. Training omits the remainder."""
        return self.split.num_examples // self._global_batch_size

    def training(self, epoch: int) -> "Batches":
        """One pass over the split in the order of (seed, epoch), without the remainder; this process's part."""
        size, (number, parts) = self._global_batch_size, self._part
        order = epoch_order(self.split.num_examples, self._seed, epoch)[: self.steps_per_epoch * size]
        part = slice(number * size // parts, (number + 1) * size // parts)
        return Batches(self, list(order.reshape(-1, size)[:, part]))

    def evaluation(self) -> "Batches":
        """One pass over the split in its stored order, to the last example."""
        starts = range(self._global_batch_size, self.split.num_examples, self._global_batch_size)
        return Batches(self, np.split(np.arange(self.split.num_examples), starts))

    def examples(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of the examples at these places of the stored order, (batch, …) each."""
        rows = self.split.layout
        # One copy per shard. The requested order follows.
        order = np.argsort(places)
        ascending = places[order]
        bounds = np.searchsorted(ascending, self._starts)
        frames = np.empty((len(places), rows.frame_bytes), np.uint8)
        for number in np.flatnonzero(np.diff(bounds)):
            first, stop = bounds[number : number + 2]
            numbers = ascending[first:stop] - self._starts[number]
            # With mode="clip" NumPy needs no buffer of its own.
            np.take(self._shards[number], numbers, axis=0, out=frames[first:stop], mode="clip")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        values = {name: frames[:, rows.slices[name]][back] for name in self.split.features}
        return self.split.decode({name: rows.decoded(name, found) for name, found in values.items()})


class Batches(keras.utils.PyDataset):
    """One pass: batches by number. Threads make the next ones while a step computes.

    Keras 3.15's own workers do not repeat the batch that ``fit`` builds a model with.
    """

    def __init__(self, stream: ColumnStream, places: Sequence[np.ndarray]) -> None:
        super().__init__()
        self._stream, self._places = stream, places
        batch_bytes = max(map(len, places), default=1) * stream.split.layout.frame_bytes
        self._ahead = max(_LEAST_BATCHES_AHEAD, min(_MOST_BATCHES_AHEAD, AHEAD_BYTES // batch_bytes))
        self._pool = ThreadPoolExecutor(machine.granted_cores())
        self._made: dict[int, Future] = {}

    def __len__(self) -> int:
        """The number of batches."""
        return len(self._places)

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of a batch."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        for ahead in range(number, min(number + self._ahead, len(self))):
            if ahead not in self._made:
                self._made[ahead] = self._pool.submit(self._stream.examples, self._places[ahead])
        return self._made.pop(number).result()

    def take(self, count: int) -> "Batches":
        """The first batches."""
        return Batches(self._stream, self._places[:count])
