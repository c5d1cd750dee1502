"""Blocks: one block of a source, read, serialized and noted (the shards' aid).

What becomes of its records is another's: they are placed (placed.py), sorted to be merged (merge.py), or handed on
(shuffled.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.records.example import frame, serialize
from pipeline.records.features import IMAGE, KEY, LABEL, content_name
from pipeline.records.fixed import FixedLayout
from pipeline.shards import presence
from pipeline.shards.notes import Notes
from pipeline.shards.plan import Job
from pipeline.sources.blocks import read_batches

#: Framed records, of one length uint8 (batch, frame_bytes), and int64 (batch, 2): the shard and the place of each.
Batch = tuple[Sequence[bytes] | np.ndarray, np.ndarray]


def read_block(block: tuple[str, int], job: Job) -> tuple[Notes, Iterator[Batch]]:
    """What is noted of a block, whole once all its batches were taken, and the batches."""
    presence.sign_in(job.shared)
    source_split, start = block
    splits = job.splits_of(source_split)
    shards, places, keys = job.shards(*splits), job.places(block), job.keys(source_split)
    split_of_shard = np.array([splits.index(shard["split"]) for shard in shards])
    notes = Notes(splits, len(job.source.label_names))
    # A held-out example keeps its key: one layout for all splits that the block is divided among.
    layout = job.layout(source_split) if job.is_fixed else None

    def batches() -> Iterator[Batch]:
        stop = start
        for columns in read_batches(job.source, job.location, job.form, source_split, start, job.stop(block)):
            first, stop = stop, stop + len(columns[content_name(columns)])
            placed = places[first - start : stop - start]
            if layout is not None:
                frames = _framed(layout, columns, keys[first:stop])
            else:
                frames = [*map(_record, columns[IMAGE], columns[LABEL].tolist(), keys[first:stop])]
            notes.add(columns, split_of_shard[placed[:, 0]])
            yield frames, placed

    return notes, batches()


def _framed(layout: FixedLayout, columns: Mapping[str, np.ndarray], keys: Iterable[str]) -> np.ndarray:
    encoded = np.frombuffer("".join(keys).encode(), np.uint8).reshape(-1, layout.key_bytes)
    return layout.encode({**columns, KEY: encoded})


def _record(image: bytes, label: int, key: str) -> bytes:
    return frame(serialize({IMAGE: image, LABEL: label, KEY: key.encode()}))
