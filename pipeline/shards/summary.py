"""Summary: the content of the records' manifest, from the notes of all blocks."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.errors import DamagedArtefactError
from pipeline.records.features import IMAGE, LABEL, TOKENS, spec_to_json
from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.shards.blocks import EXAMPLE
from pipeline.shards.findings import find, warnings, write_rows
from pipeline.shards.plan import NOTES, Job, block_file
from pipeline.shards.shared import read_each
from pipeline.sources.file_index import read_index
from pipeline.sources.reading import example_names
from pipeline.sources.source import SourceInfo
from pipeline.sources.text_reading import text_digest

SKIPPED_NAME = "skipped.csv"


def summarize(job: Job, source: SourceInfo) -> dict:
    """The details of the manifest. Writes duplicates.csv and skipped.csv into the job's folder if they have rows.

    Args:
        job: after all its blocks were written.
        source: the source before a text is cut into examples.
    """
    folder, listing, spec = Path(job.folder), job.location.listing, job.spec
    examples, label_counts = _read_notes(job)
    splits, names = {}, {}
    for source_split, num_examples in job.source.num_examples.items():
        layout = job.layout(source_split)
        rows = {"rows": layout.rows.to_json()} if job.is_fixed else {}
        for split in job.splits_of(source_split):
            names[split] = example_names(source_split, num_examples, listing)
            splits[split] = {
                "num_examples": job.num_examples[split],
                "label_counts": label_counts[split],
                "content_digest": _joint_digest(examples[split]),
                "key_bytes": layout.key_bytes,
                **rows,
            }
    # Metrics per label exist only if examples have labels.
    found = find(examples, names, job.source.label_names if LABEL in spec else (), label_counts, folder)
    if listing and (skipped := read_index(listing).skipped):
        listed = ((one.path, one.reason, one.detail) for one in skipped)
        write_rows(folder / SKIPPED_NAME, ("path", "reason", "detail"), listed)
    return {
        "source": source.to_json(),
        "feature_spec": spec_to_json(spec),
        **({"image": {"shape": list(job.form.shape(source.features[IMAGE])), **vars(job.form)}} if job.form else {}),
        "label_names": list(job.source.label_names),
        "splits": {split: splits[split] for split in job.num_examples},
        "findings": found,
        "warnings": warnings(found, job.num_examples.get("test", 0), has_labels=LABEL in spec),
        "dataset_verified": _is_verified(job, source, examples),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for shard in job.shards()
        },
    }


def _read_notes(job: Job) -> tuple[dict[str, np.ndarray], dict[str, dict[str, int]]]:
    """Split → its examples in the order of the records, EXAMPLE (examples,), and the number of each label."""
    # The examples of all splits, one after the other.
    shards, stops = job.shards(), np.cumsum([*job.num_examples.values()])
    examples, is_noted = np.empty(stops[-1], EXAMPLE), np.zeros(stops[-1], bool)
    sizes = np.array([shard["num_records"] for shard in shards])
    firsts = dict(zip((shard["name"] for shard in shards), np.cumsum(sizes) - sizes, strict=True))
    counts = {split: np.zeros(len(job.source.label_names), np.int64) for split in job.num_examples}
    for source_split in job.source.num_examples:
        first = np.array([firsts[shard["name"]] for shard in job.shards_of(source_split)])
        for content in read_each(job.shared, [block_file(NOTES, block) for block in job.blocks(source_split)]):
            notes = np.load(io.BytesIO(content))
            noted = notes["examples"]
            positions = first[noted["shard"]] + noted["place"]
            examples[positions], is_noted[positions] = noted, True
            for split, of_block in zip(job.splits_of(source_split), notes["counts"], strict=True):
                counts[split] += of_block
    if not is_noted.all():
        raise DamagedArtefactError(f"{job.shared}: expected notes on {stops[-1]} records, found {is_noted.sum()}.")
    by_split = dict(zip(job.num_examples, np.split(examples, stops[:-1]), strict=True))
    return by_split, {
        split: dict(zip(job.source.label_names, each.tolist(), strict=True)) for split, each in counts.items()
    }


def _is_verified(job: Job, source: SourceInfo, examples: Mapping[str, np.ndarray]) -> bool:
    """Whether the source has the contents of the known dataset of its name."""
    if not job.is_fixed:
        return False
    if TOKENS in job.spec:
        # The digest of the whole text does not depend on the length of its examples.
        digests = {"text": text_digest(source, Path(job.location.artefact))}
    else:
        parts = {split: [examples[part] for part in job.splits_of(split)] for split in source.num_examples}
        digests = {split: _joint_digest(*part) for split, part in parts.items()}
    return digests == CONTENT_DIGESTS.get(source.dataset)


def _joint_digest(*examples: np.ndarray) -> str:
    """sha256 of the sorted sha256 of all examples."""
    return hashlib.sha256(np.sort(np.concatenate([each["digest"] for each in examples]))).hexdigest()
