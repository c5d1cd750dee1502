"""Content: what of an example is learned from, and what is predicted, feature by feature (the records' aid).

Asked for wherever examples are counted, digested or compared without regard to what a network makes of them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pipeline.records.features import LABEL, TOKENS, content_name

Columns = Mapping[str, np.ndarray | Sequence[bytes]]


def targets(columns: Columns) -> np.ndarray:
    """What is to be predicted of each example of a batch: int64 (batch, predictions).

    The label; of a text each token but the first, so that over all examples each is counted once.
    """
    found = columns[LABEL][:, None] if LABEL in columns else columns[TOKENS][:, 1:]
    return np.asarray(found).astype(np.int64)


def content_digests(columns: Columns, num_labels: int) -> Iterable[bytes]:
    """sha256 of each example: of its label, where it has one, and its content as it is stored.

    The label takes one byte where all labels fit, else eight.
    """
    content = columns[content_name(columns)]
    labels = columns.get(LABEL, np.empty(0)).astype("u1" if num_labels <= 256 else "<u8")
    label_bytes = labels[:, None].view(np.uint8) if LABEL in columns else np.empty((len(content), 0), np.uint8)
    if isinstance(content, np.ndarray):
        rows = np.concatenate([label_bytes, content.reshape(len(content), -1)], axis=1)
        return (hashlib.sha256(row).digest() for row in rows)
    return (hashlib.sha256(label.tobytes() + one).digest() for label, one in zip(label_bytes, content, strict=True))
