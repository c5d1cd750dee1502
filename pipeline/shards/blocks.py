"""Blocks: read and serialize one block of a source, and note its digests and label counts."""

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.records.example import frame, serialize, targets
from pipeline.records.features import IMAGE, KEY, LABEL, content_name
from pipeline.records.images import fingerprints
from pipeline.shards.plan import NOTES, Block, Job, block_file
from pipeline.shards.writers import Batch
from pipeline.sources.source import read_batches

#: Notes on an example: its position, its index in the source, its label, and two digests of its image or tokens.
EXAMPLE = np.dtype(
    [("shard", "<i8"), ("place", "<i8"), ("index", "<i8"), ("label", "<i4"), ("fingerprint", "<u8"), ("digest", "S32")]
)
Columns = Mapping[str, np.ndarray | Sequence[bytes]]


class Notes:
    """The examples of a block, EXAMPLE (examples,), and their label counts by split, int64 (splits, labels)."""

    def __init__(self, block: Block, job: Job) -> None:
        self._block, self._job = block, job
        splits = job.splits_of(block[0])
        self._split_of_shard = np.array([splits.index(shard["split"]) for shard in job.shards_of(block[0])])
        self._counts = np.zeros((len(splits), len(job.source.label_names)), np.int64)
        self._examples = np.empty(block[2] - block[1], EXAMPLE)
        self._examples["index"] = np.arange(*block[1:])

    def add(self, columns: Columns, first: int, places: np.ndarray) -> None:
        """Note a batch: its place in the block, and int64 (batch, 2), the shard and place of each example."""
        examples = self._examples[first : first + len(places)]
        examples["shard"], examples["place"] = places.T
        examples["label"], examples["fingerprint"] = columns.get(LABEL, 0), fingerprints(columns[content_name(columns)])
        examples["digest"] = [*content_digests(columns, self._counts.shape[1])]
        np.add.at(self._counts, (self._split_of_shard[places[:, :1]], targets(columns)), 1)

    def write(self) -> None:
        """Write the notes of a complete block."""
        content = io.BytesIO()
        np.savez(content, examples=self._examples, counts=self._counts)
        self._job.shared.write(block_file(NOTES, self._block), content.getvalue())


def read_block(block: Block, job: Job, notes: Notes) -> Iterator[Batch]:
    """The batches of a block. Each is noted."""
    source_split, start, stop = block
    places, keys, layout = job.places(block), job.keys(source_split)[start:stop], job.layout(source_split)
    first = 0
    for columns in read_batches(job.source, job.location, job.form, source_split, start, stop):
        here = slice(first, first + len(columns[content_name(columns)]))
        if job.is_fixed:
            # A held-out example keeps its key, so all keys have one length.
            encoded = np.frombuffer("".join(keys[here]).encode(), np.uint8).reshape(-1, layout.key_bytes)
            frames = layout.encode({**columns, KEY: encoded})
        else:
            examples = zip(columns[IMAGE], columns[LABEL].tolist(), keys[here], strict=True)
            frames = [
                frame(serialize({IMAGE: image, LABEL: label, KEY: key.encode()})) for image, label, key in examples
            ]
        notes.add(columns, first, places[here])
        first = here.stop
        yield frames, places[here]


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
