"""Notes: what each block finds out about its examples, and what all notes together say of a split (the shards' aid)."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.records.content import content_digests, targets
from pipeline.records.features import LABEL, content_name
from pipeline.records.images import fingerprints
from pipeline.shards.shared import Shared, read_each

EXAMPLE = np.dtype([("fingerprint", "<u8"), ("label", "<i4")])
_DIGEST_BYTES = hashlib.sha256().digest_size


class Notes:
    """Digests and label counts of the examples of a block, by split of the records."""

    def __init__(self, splits: Sequence[str], num_labels: int) -> None:
        self._splits, self._num_labels = splits, num_labels
        self._digests = [bytearray() for _ in splits]
        self._counts = np.zeros((len(splits), num_labels), np.int64)
        self._examples: list[np.ndarray] = []

    def add(self, columns: Mapping[str, np.ndarray | Sequence[bytes]], split: np.ndarray) -> None:
        """Take note of a batch; ``split`` is int (batch,), the place of each example's split among the splits."""
        digests = content_digests(columns, self._num_labels)
        for at, digest in zip(split.tolist(), digests, strict=True):
            self._digests[at] += digest
        np.add.at(self._counts, (split[:, None], targets(columns)), 1)
        examples = np.empty(len(split), EXAMPLE)
        examples["fingerprint"], examples["label"] = fingerprints(columns[content_name(columns)]), columns.get(LABEL, 0)
        self._examples.append(examples)

    def write(self, shared: Shared, name: str) -> None:
        """Leave them under a name."""
        content = {
            split: {"label_counts": counts.tolist(), "digests": digests.hex()}
            for split, counts, digests in zip(self._splits, self._counts, self._digests, strict=True)
        }
        # The note itself comes last: it says that the block is done.
        shared.write(_examples_name(name), b"".join(examples.tobytes() for examples in self._examples))
        shared.write(name, json.dumps(content).encode())


def read_examples(shared: Shared, names: Sequence[str]) -> np.ndarray:
    """Fingerprint of the image and label of each example of these blocks, in their order: EXAMPLE (examples,)."""
    return np.concatenate(
        [np.frombuffer(content, EXAMPLE) for content in read_each(shared, [*map(_examples_name, names)])]
    )


def _examples_name(name: str) -> str:
    return f"{name.removesuffix('.json')}.examples"


def summarise(shared: Shared, names: Mapping[str, Sequence[str]], label_names: Sequence[str]) -> dict:
    """What the manifest says of each split, and the content digest of each split of the source.

    Args:
        shared: where the notes are.
        names: split of the source → its blocks' notes.
        label_names: in order.
    """
    splits: dict[str, dict] = {}
    source_digests = {}
    for source_split, ours in names.items():
        digests: dict[str, bytearray] = {}
        counts: dict[str, np.ndarray] = {}
        for content in read_each(shared, ours):
            for split, entry in json.loads(content).items():
                digests.setdefault(split, bytearray()).extend(bytes.fromhex(entry["digests"]))
                counts[split] = counts.get(split, 0) + np.array(entry["label_counts"])
        joint = {split: _joint_digest(found) for split, found in digests.items()}
        # Where the source's split is one of the records, it is summed up once.
        is_divided = len(digests) > 1
        source_digests[source_split] = (
            _joint_digest(bytearray().join(digests.values())) if is_divided else joint[source_split]
        )
        for split, found in digests.items():
            splits[split] = {
                "num_examples": len(found) // _DIGEST_BYTES,
                "label_counts": dict(zip(label_names, counts[split].tolist(), strict=True)),
                "content_digest": joint[split],
            }
    return {"splits": splits, "source_digests": source_digests}


def _joint_digest(digests: bytearray) -> str:
    """The digest of examples in any order: hex sha256 of their own digests, which are sorted where they are."""
    each = np.frombuffer(digests, f"S{_DIGEST_BYTES}")
    each.sort()
    return hashlib.sha256(each).hexdigest()
