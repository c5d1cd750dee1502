"""Summary: the content of the records' manifest, from the notes of all blocks."""

import csv
import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.records.features import IMAGE, LABEL, TOKENS, spec_to_json
from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.shards.blocks import read_examples
from pipeline.shards.findings import Noted, find, never_trained_on, warnings
from pipeline.shards.plan import Job
from pipeline.shards.shared import read_each
from pipeline.sources.file_index import read_index
from pipeline.sources.source import SourceInfo, example_names
from pipeline.sources.tokens import text_digest

SKIPPED_NAME = "skipped.csv"
_DIGEST_BYTES = hashlib.sha256().digest_size


def summarize(job: Job, source: SourceInfo) -> dict:
    """The details of the manifest. Writes duplicates.csv and skipped.csv into the job's folder if they have rows.

    Args:
        job: after all its blocks were written.
        source: the source before a text is cut into examples.
    """
    splits, source_digests = _summarize_splits(job)
    # Metrics per label exist only if examples have labels.
    found = find(_noted(job), job.source.label_names if LABEL in job.spec else (), Path(job.folder))
    counts = {split: entry["label_counts"] for split, entry in splits.items()}
    found["never_trained_on"] = never_trained_on(counts)
    if TOKENS in job.spec:
        # The digest of the whole text does not depend on the length of its examples.
        source_digests = {"text": text_digest(source, Path(job.location.artefact))}
    if job.location.listing:
        _write_skipped(Path(job.folder), job.location.listing)
    return {
        "source": source.to_json(),
        "feature_spec": spec_to_json(job.spec),
        **({"image": {"shape": list(job.form.shape(source.features[IMAGE])), **vars(job.form)}} if job.form else {}),
        "label_names": list(job.source.label_names),
        "splits": splits,
        "findings": found,
        "warnings": warnings(found, job.num_examples.get("test", 0), has_labels=LABEL in job.spec),
        "dataset_verified": job.is_fixed and source_digests == CONTENT_DIGESTS.get(job.source.dataset),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for shard in job.shards(*job.splits())
        },
    }


def _summarize_splits(job: Job) -> tuple[dict[str, dict], dict[str, str]]:
    """The manifest's entry of each split of the records, and the content digest of each split of the source."""
    entries: dict[str, dict] = {}
    source_digests = {}
    for source_split in job.source.num_examples:
        digests: dict[str, bytearray] = {}
        counts: dict[str, np.ndarray] = {}
        for content in read_each(job.shared, [*map(job.note_name, job.blocks(source_split))]):
            for split, note in json.loads(content).items():
                digests.setdefault(split, bytearray()).extend(bytes.fromhex(note["digests"]))
                counts[split] = counts.get(split, 0) + np.array(note["label_counts"])
        joint = {split: _joint_digest(each) for split, each in digests.items()}
        # An undivided split is not digested again.
        whole = _joint_digest(bytearray().join(digests.values())) if len(digests) > 1 else joint[source_split]
        source_digests[source_split] = whole
        layout = {"key_bytes": job.key_bytes(source_split)}
        if job.is_fixed:
            layout["rows"] = job.layout(source_split).rows.to_json()
        for split, each in digests.items():
            entries[split] = {
                "num_examples": len(each) // _DIGEST_BYTES,
                "label_counts": dict(zip(job.source.label_names, counts[split].tolist(), strict=True)),
                "content_digest": joint[split],
                **layout,
            }
    return {split: entries[split] for split in job.splits()}, source_digests


def _joint_digest(digests: bytearray) -> str:
    """sha256 of the sorted sha256 of all examples. Sorts in place."""
    each = np.frombuffer(digests, f"S{_DIGEST_BYTES}")
    each.sort()
    return hashlib.sha256(each).hexdigest()


def _noted(job: Job) -> Noted:
    """The examples in the order of the records."""
    splits, parts, names = job.splits(), [], []
    for source_split, num_examples in job.source.num_examples.items():
        shards = job.shards(*job.splits_of(source_split))
        split_of_shard = np.array([splits.index(shard["split"]) for shard in shards], np.uint8)
        # The place of each shard's first record in its split.
        sizes = np.array([shard["num_records"] for shard in shards])
        before = np.cumsum(sizes) - sizes
        starts = before - before[np.searchsorted(split_of_shard, split_of_shard)]
        blocks = job.blocks(source_split)
        shard, place = np.concatenate([*map(job.places, blocks)]).T
        examples = read_examples(job.shared, [*map(job.note_name, blocks)])
        parts.append((split_of_shard[shard], starts[shard] + place, examples))
        names.append(example_names(source_split, num_examples, job.location.listing))
    split, place, examples = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((place, split))
    return Noted(
        splits=splits,
        split=split[order],
        place=place[order],
        label=examples["label"][order],
        fingerprint=examples["fingerprint"][order],
        name_of=partial(_name_of, names, order),
    )


def _name_of(parts: Sequence[Sequence[str]], order: np.ndarray, at: int) -> str:
    """The name of an example, computed on demand: few of a billion are needed."""
    index = int(order[at])
    for part in parts:
        if index < len(part):
            break
        index -= len(part)
    return part[index]


def _write_skipped(folder: Path, listing: str) -> None:
    """List path, reason and detail of each file of the source that is not an example."""
    skipped = read_index(listing).skipped
    if not skipped:
        return
    # The name of a file may not be UTF-8.
    with (folder / SKIPPED_NAME).open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "reason", "detail"))
        rows.writerows((one.path, one.reason, one.detail) for one in skipped)
