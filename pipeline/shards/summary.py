"""Summary: the content of the records' manifest, from the notes of all blocks."""

import hashlib
import io
from pathlib import Path

import numpy as np

from pipeline.errors import DamagedArtefactError
from pipeline.records.features import IMAGE, LABEL, spec_to_json
from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.shards.blocks import EXAMPLE
from pipeline.shards.findings import find, warnings, write_rows
from pipeline.shards.plan import NOTES, Job, block_file
from pipeline.shards.shared import read_each
from pipeline.sources.file_index import example_names, read_index
from pipeline.sources.source import SourceInfo
from pipeline.sources.text import text_digest

SKIPPED_NAME = "skipped.csv"
# What is kept of EXAMPLE.
NOTED = np.dtype([(name, EXAMPLE[name]) for name in ("index", "label", "fingerprint")])


def summarize(job: Job, source: SourceInfo) -> dict:
    """The details of the manifest. Writes duplicates.csv and skipped.csv into the job's folder if they have rows.

    Args:
        job: after all its blocks were written.
        source: the source before a text is cut into examples.
    """
    folder, listing, spec = Path(job.folder), job.location.listing, job.spec
    examples, label_counts, content_digests, source_digests = _read_notes(job)
    splits, names = {}, {}
    for source_split, num_examples in job.source.num_examples.items():
        layout = job.layout(source_split)
        rows = {"rows": layout.rows.to_json()} if job.is_fixed else {}
        for split in job.splits_of(source_split):
            names[split] = example_names(source_split, num_examples, listing)
            splits[split] = {
                "num_examples": job.num_examples[split],
                "label_counts": label_counts[split],
                "content_digest": content_digests[split],
                "key_bytes": layout.key_bytes,
                **rows,
            }
    if source.is_sequence:
        # The digest of the whole text does not depend on the length of its examples.
        source_digests = {"text": text_digest(source, Path(job.location.artefact))}
    # Metrics per label exist only if examples have labels.
    found = find(examples, names, job.source.label_names if LABEL in spec else (), label_counts, folder)
    if listing and (skipped := read_index(listing).skipped):
        listed = ((one.path, one.reason, one.detail) for one in skipped)
        write_rows(folder / SKIPPED_NAME, ("path", "reason", "detail"), listed)
    return {
        "source": source.to_json(),
        "problem": source.problem,
        "feature_spec": spec_to_json(spec),
        **({"image": {"shape": list(job.form.shape(source.features[IMAGE])), **vars(job.form)}} if job.form else {}),
        "label_names": list(job.source.label_names),
        "splits": {split: splits[split] for split in job.num_examples},
        "findings": found,
        "warnings": warnings(found, job.num_examples.get("test", 0), has_labels=LABEL in spec),
        "dataset_verified": job.is_fixed and source_digests == CONTENT_DIGESTS.get(source.dataset),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for shard in job.shards()
        },
    }


def _read_notes(job: Job) -> tuple[dict[str, np.ndarray], dict[str, dict[str, int]], dict[str, str], dict[str, str]]:
    """By split: its examples, the number of each label, the digest. Last, the digest of each split of the source."""
    # All splits in the order of the records. A billion examples take 53 GB.
    stops = np.cumsum([*job.num_examples.values()])
    examples, digests, is_noted = (np.zeros(stops[-1], dtype) for dtype in (NOTED, EXAMPLE["digest"], bool))
    shards = job.shards()
    sizes = np.array([shard["num_records"] for shard in shards])
    firsts = dict(zip((shard["name"] for shard in shards), np.cumsum(sizes) - sizes, strict=True))
    counts = {split: np.zeros(len(job.source.label_names), np.int64) for split in job.num_examples}
    for source_split in job.source.num_examples:
        first = np.array([firsts[shard["name"]] for shard in job.shards_of(source_split)])
        for content in read_each(job.shared, [block_file(NOTES, block) for block in job.blocks(source_split)]):
            notes = np.load(io.BytesIO(content))
            noted = notes["examples"]
            positions = first[noted["shard"]] + noted["place"]
            digests[positions], is_noted[positions] = noted["digest"], True
            for name in NOTED.names:
                examples[name][positions] = noted[name]
            for split, of_block in zip(job.splits_of(source_split), notes["counts"], strict=True):
                counts[split] += of_block
    if not is_noted.all():
        raise DamagedArtefactError(f"{job.shared}: expected notes on {stops[-1]} records, found {is_noted.sum()}.")
    by_split = dict(zip(job.num_examples, np.split(examples, stops[:-1]), strict=True))
    parts = dict(zip(job.num_examples, np.split(digests, stops[:-1]), strict=True))
    joint = {split: _joint_digest(part) for split, part in parts.items()}
    source_joint = {}
    for source_split in job.source.num_examples:
        first, *others = job.splits_of(source_split)
        whole = [parts[split] for split in (first, *others)]
        source_joint[source_split] = _joint_digest(np.concatenate(whole)) if others else joint[first]
    labels = {split: dict(zip(job.source.label_names, each.tolist(), strict=True)) for split, each in counts.items()}
    return by_split, labels, joint, source_joint


def _joint_digest(digests: np.ndarray) -> str:
    """sha256 of the sorted sha256 of all examples. Sorts in place."""
    digests.sort()
    return hashlib.sha256(digests).hexdigest()
