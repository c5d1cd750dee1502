"""Shuffled: whole shards through the runner's shuffle, each written as one object (a way of writing shards).

Where workers share no file system with one another, the records themselves pass through the runner: a block gives its
records shard by shard, the runner brings those of a shard together, and one worker sorts them by place and writes them
to the object store. A worker holds some batches of a block, or one shard twice; a runner that does not put elements on
disk (Beam's own, Dask) holds what it brings together besides. The bytes are those of either other
way. An object is called by its sha256, as the remote calls the files of an artefact: what runs twice writes the same
object, and what is pushed later is there already.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pipeline.errors import DamagedArtefactError
from pipeline.shards import presence, words
from pipeline.shards.blocks import read_block
from pipeline.shards.plan import Job

#: Places in the shard and lengths of records, int64 each, and the records one after the other.
Part = tuple[bytes, bytes, bytes]
#: Split of the source, and a shard, counted through all that the split is divided among.
Key = tuple[str, int]

# Of records that wait to be handed on together: a part of a shard is some hundred kilobytes then.
_PENDING_BYTES = 16 * 2**20
_NOTE_BYTES = 4_096
#: Of what a shard came to, by the shard's name.
NOTES = "shards"


def parts(block: tuple[str, int], job: Job) -> Iterator[tuple[Key, Part]]:
    """Read and serialize one block; its records by shard, in parts. Notes its digests and labels as it ends."""
    notes, batches = read_block(block, job)
    pending: list[tuple[Sequence[bytes] | np.ndarray, np.ndarray]] = []
    size = 0
    for frames, places in batches:
        pending.append((frames, places))
        size += sum(map(len, frames))
        if size >= _PENDING_BYTES:
            yield from _by_shard(block[0], pending)
            pending, size = [], 0
    yield from _by_shard(block[0], pending)
    notes.write(job.shared, job.note_name(block))


def _by_shard(source_split: str, pending: list[tuple[Sequence[bytes] | np.ndarray, np.ndarray]]) -> Iterator:
    if not pending:
        return
    frames = [bytes(frame) for batch, _ in pending for frame in batch]
    places = np.concatenate([places for _, places in pending])
    lengths = np.array([len(frame) for frame in frames], "<i8")
    for shard in np.unique(places[:, 0]).tolist():
        mine = np.flatnonzero(places[:, 0] == shard)
        joined = b"".join(frames[row] for row in mine.tolist())
        yield (source_split, shard), (places[mine, 1].astype("<i8").tobytes(), lengths[mine].tobytes(), joined)


def write_shard(together: tuple[Key, Iterable[Part]], job: Job) -> str:
    """Write all records of a shard as one object, and note its digest; returns the shard's name.

    Raises:
        ValueError: the runner did not bring each of its records once.
    """
    presence.sign_in(job.shared)
    (source_split, number), given = together
    shard = job.shards(*job.splits_of(source_split))[number]
    content = _joined(list(given), shard["num_records"], shard["name"])
    digest = hashlib.sha256(content).hexdigest()
    # Whatever is there by this name: it may have been damaged, or be about to be cleared away.
    job.shared.objects.put(f"{job.shared.files}/{digest}", content)
    noted = {"sha256": digest, "bytes": len(content)}
    job.shared.write(f"{NOTES}/{shard['name']}.json", json.dumps(noted).encode())
    return shard["name"]


def noted(job: Job, name: str) -> tuple[str, int]:
    """The sha256 and the bytes of a shard, as its writer noted them; anyone with the credentials may have.

    Raises:
        FileNotFoundError: there is no note of it.
        DamagedArtefactError: it is none of ours.
    """
    place = f"{NOTES}/{name}.json"
    content = job.shared.read(place, at_most=_NOTE_BYTES)
    try:
        found = json.loads(content)
        digest, size = found["sha256"], found["bytes"]
        is_ours = bool(re.fullmatch("[0-9a-f]{64}", digest)) and type(size) is int and size >= 0
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise DamagedArtefactError(words.no_note(f"{job.shared}/{place}"))
    return digest, size


def _joined(given: Sequence[Part], num_records: int, name: str) -> bytes:
    places = np.concatenate([np.frombuffer(part[0], "<i8") for part in given])
    order = np.argsort(places, kind="stable")
    if not np.array_equal(places[order], np.arange(num_records)):
        raise ValueError(words.not_each_once(name, num_records, len(places)))
    records = [record for _, lengths, joined in given for record in _cut(np.frombuffer(lengths, "<i8"), joined)]
    return b"".join(records[row] for row in order.tolist())


def _cut(lengths: np.ndarray, joined: bytes) -> Iterator[memoryview]:
    view = memoryview(joined)
    for start, stop in itertools.pairwise([0, *np.cumsum(lengths).tolist()]):
        yield view[start:stop]
