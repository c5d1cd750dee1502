"""Blocks: read and serialize one block of a source, and note its digests and label counts."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.records.example import frame, serialize, targets
from pipeline.records.features import IMAGE, KEY, LABEL, content_name
from pipeline.records.fixed import FixedLayout
from pipeline.records.images import fingerprints
from pipeline.shards import presence
from pipeline.shards.plan import Block, Job
from pipeline.shards.shared import Shared, read_each
from pipeline.shards.writers import Batch
from pipeline.sources.source import read_batches

#: The fingerprint of the image or tokens of an example, and its label.
EXAMPLE = np.dtype([("fingerprint", "<u8"), ("label", "<i4")])
Columns = Mapping[str, np.ndarray | Sequence[bytes]]


class Notes:
    """Digests and label counts of the examples of a block, by split of the records."""

    def __init__(self, splits: Sequence[str], num_labels: int) -> None:
        self._splits, self._num_labels = splits, num_labels
        self._digests = [bytearray() for _ in splits]
        self._counts = np.zeros((len(splits), num_labels), np.int64)
        self._examples: list[bytes] = []

    def add(self, columns: Columns, split: np.ndarray) -> None:
        """Note a batch; ``split`` is int (batch,), the number of each example's split."""
        digests = content_digests(columns, self._num_labels)
        for number, digest in zip(split.tolist(), digests, strict=True):
            self._digests[number] += digest
        np.add.at(self._counts, (split[:, None], targets(columns)), 1)
        examples = np.empty(len(split), EXAMPLE)
        examples["fingerprint"], examples["label"] = fingerprints(columns[content_name(columns)]), columns.get(LABEL, 0)
        self._examples.append(examples.tobytes())

    def write(self, shared: Shared, name: str) -> None:
        """Write the notes. The file ``name`` is written last and means that the block is complete."""
        content = {
            split: {"label_counts": counts.tolist(), "digests": digests.hex()}
            for split, counts, digests in zip(self._splits, self._counts, self._digests, strict=True)
        }
        shared.write(_examples_name(name), b"".join(self._examples))
        shared.write(name, json.dumps(content).encode())


def read_block(block: Block, job: Job) -> tuple[Notes, Iterator[Batch]]:
    """The batches of a block, and its notes, which are complete after the last batch."""
    presence.sign_in(job.shared)
    source_split, start = block
    splits = job.splits_of(source_split)
    shards, places, keys = job.shards(*splits), job.places(block), job.keys(source_split)
    split_of_shard = np.array([splits.index(shard["split"]) for shard in shards])
    notes = Notes(splits, len(job.source.label_names))
    # A held-out example keeps its key, so all splits of the block have one layout.
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


def content_digests(columns: Columns, num_labels: int) -> Iterable[bytes]:
    """sha256 of the label, if there is one, and the stored content of each example.

    The label takes one byte if all labels fit, otherwise eight.
    """
    content = columns[content_name(columns)]
    labels = columns.get(LABEL, np.empty(0)).astype("u1" if num_labels <= 256 else "<u8")
    label_bytes = labels[:, None].view(np.uint8) if LABEL in columns else np.empty((len(content), 0), np.uint8)
    if isinstance(content, np.ndarray):
        rows = np.concatenate([label_bytes, content.reshape(len(content), -1)], axis=1)
        return (hashlib.sha256(row).digest() for row in rows)
    return (hashlib.sha256(label.tobytes() + one).digest() for label, one in zip(label_bytes, content, strict=True))


def read_examples(shared: Shared, names: Sequence[str]) -> np.ndarray:
    """Fingerprint and label of each example of these notes: EXAMPLE (examples,)."""
    contents = read_each(shared, [*map(_examples_name, names)])
    return np.concatenate([np.frombuffer(content, EXAMPLE) for content in contents])


def _framed(layout: FixedLayout, columns: Mapping[str, np.ndarray], keys: Iterable[str]) -> np.ndarray:
    encoded = np.frombuffer("".join(keys).encode(), np.uint8).reshape(-1, layout.key_bytes)
    return layout.encode({**columns, KEY: encoded})


def _record(image: bytes, label: int, key: str) -> bytes:
    return frame(serialize({IMAGE: image, LABEL: label, KEY: key.encode()}))


def _examples_name(name: str) -> str:
    return f"{name.removesuffix('.json')}.examples"
