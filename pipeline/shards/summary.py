"""Statistics that workers write for each block, and the details of the records' manifest from all blocks."""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import DamagedArtifactError
from pipeline.records import CONTENT_DIGESTS
from pipeline.records.example import add_labels
from pipeline.records.features import IMAGE, LABEL, TEST_NAMES, TEXT, content_name, spec_to_json
from pipeline.records.images import fingerprints
from pipeline.shards.data_checks import HASH_WORDS, check_data, image_hashes, warnings, write_rows
from pipeline.shards.plan import BLOCK_STATS, Block, Job, block_file
from pipeline.shards.shared import read_each
from pipeline.shards.splits import division
from pipeline.sources.files import read_index
from pipeline.sources.reading import count_longer, text_digest
from pipeline.sources.source import SourceInfo

SKIPPED_NAME = "skipped.csv"
#: Statistics of an example, with its position, its index in the source, its label, and two digests of its content.
_KEPT = [("index", "<i8"), ("label", "<i4"), ("fingerprint", "<u8"), ("image_hash", "<u2", (HASH_WORDS,))]
EXAMPLE = np.dtype([("shard", "<i8"), ("position", "<i8"), *_KEPT, ("digest", "S32")])
# The fields of EXAMPLE that stay in memory.
KEPT_FIELDS = np.dtype(_KEPT)
Columns = Mapping[str, np.ndarray | Sequence[bytes]]


class BlockStats:
    """Statistics of a block, as EXAMPLE (examples,), and its label counts, int64 (splits, labels)."""

    def __init__(self, block: Block, job: Job) -> None:
        self._block, self._job = block, job
        splits = job.splits_of(block[0])
        self._split_of_shard = np.array([splits.index(shard["split"]) for shard in job.shards_of(block[0])])
        self._counts = np.zeros((len(splits), len(job.source.label_names)), np.int64)
        self._examples = np.empty(block[2] - block[1], EXAMPLE)
        self._examples["index"] = np.arange(*block[1:])

    def add(self, columns: Columns, start: int, positions: np.ndarray) -> None:
        """Add a batch that starts at ``start`` in the block. ``positions`` is int64 (batch, 2), shard and position."""
        examples = self._examples[start : start + len(positions)]
        examples["shard"], examples["position"] = positions.T
        labels = columns.get(LABEL, 0)
        # Equal vectors of labels have equal digests.
        examples["label"] = fingerprints(labels).astype(np.int32) if np.ndim(labels) > 1 else labels
        examples["fingerprint"] = fingerprints(columns[content_name(columns)])
        examples["image_hash"] = image_hashes(columns[IMAGE]) if IMAGE in columns else 0
        examples["digest"] = [*content_digests(columns, self._counts.shape[1])]
        add_labels(self._counts, self._split_of_shard[positions[:, 0]], columns)

    def write(self) -> None:
        """Write the statistics of a complete block."""
        content = io.BytesIO()
        np.savez(content, examples=self._examples, counts=self._counts)
        self._job.shared.write(block_file(BLOCK_STATS, self._block), content.getvalue())


def content_digests(columns: Columns, num_labels: int) -> Iterable[bytes]:
    """sha256 of the label, in one byte if all labels fit or else in eight, and the stored content of each example."""
    content = columns[content_name(columns)]
    labels = np.ascontiguousarray(columns.get(LABEL, np.empty((len(content), 0), np.uint8)))
    if labels.ndim == 1:
        labels = labels.astype("u1" if num_labels <= 256 else "<u8")[:, None]
    label_bytes = labels.view(np.uint8)
    if isinstance(content, np.ndarray):
        rows = np.concatenate([label_bytes, content.reshape(len(content), -1)], axis=1)
        return (hashlib.sha256(row).digest() for row in rows)
    return (hashlib.sha256(label.tobytes() + data).digest() for label, data in zip(label_bytes, content, strict=True))


def summarize(job: Job, source: SourceInfo) -> dict:
    """The details of the manifest of all blocks. Writes test_names.csv and the CSV files of problems that have rows.

    ``source`` is that before a text is cut into examples.
    """
    folder, listing, spec = Path(job.folder), job.location.listing, job.spec
    examples, label_counts, digests = _read_block_stats(job)
    splits, names = {}, {}
    for source_split in job.source.num_examples:
        layout = job.layout(source_split)
        rows = {"rows": layout.rows.to_json()} if job.is_fixed else {}
        for split in job.splits_of(source_split):
            # Paths below the source's folder, else the keys.
            names[split] = read_index(listing).splits[source_split].paths if listing else job.keys(source_split)
            splits[split] = {
                "num_examples": job.num_examples[split],
                "label_counts": label_counts[split],
                "content_digest": _joint_digest(digests[split]),
                "key_bytes": layout.key_bytes,
                **rows,
            }
    if TEXT in spec:
        (length,), longer = spec[TEXT].shape, count_longer(job.source, Path(job.location.artifact))
    kind_of_labels = {"has_labels": LABEL in spec, "has_classes": LABEL in spec and spec[LABEL].is_number}
    # Statistics per label need examples with labels.
    label_names = job.source.label_names if LABEL in spec and spec[LABEL].dtype != "float32" else ()
    findings = check_data(examples, names, label_names, label_counts, folder)
    if LABEL in spec and "test" in names:
        write_rows(folder / TEST_NAMES, ("name",), ([names["test"][index]] for index in examples["test"]["index"]))
    if listing and (skipped := read_index(listing).skipped):
        rows = ((file.path, file.reason, file.detail) for file in skipped)
        write_rows(folder / SKIPPED_NAME, ("path", "reason", "detail"), rows)
    return {
        "source": source.to_json(),
        "problem": source.problem,
        "division": division(job.source, job.location),
        "feature_spec": spec_to_json(spec),
        **({"image": {"shape": list(job.form.shape(source.features[IMAGE])), **vars(job.form)}} if job.form else {}),
        "label_names": list(job.source.label_names),
        **_statistics(job, examples["train"]["index"]),
        "splits": {split: splits[split] for split in job.num_examples},
        "findings": findings,
        **({"texts": {"length": length, "longer": longer}} if TEXT in spec else {}),
        "warnings": warnings(findings, job.num_examples.get("test", 0), noun=content_name(spec), **kind_of_labels),
        "dataset_verified": _is_verified(job, source, digests),
        "files": {shard.pop("name"): shard for shard in job.shards()},
    }


def _is_verified(job: Job, source: SourceInfo, digests: Mapping[str, np.ndarray]) -> bool:
    """Whether the source has the content of the original files. ``digests`` are those of each split of the records."""
    if not job.is_fixed or source.dataset not in CONTENT_DIGESTS:
        return False
    if source.is_sequence:
        # The digest of the whole text does not depend on the length of its examples.
        contents = {"text": text_digest(source, Path(job.location.artifact))}
    else:
        parts = {split: [digests[part] for part in job.splits_of(split)] for split in source.num_examples}
        contents = {split: _joint_digest(np.concatenate(its)) for split, its in parts.items()}
    return contents == CONTENT_DIGESTS[source.dataset]


def _statistics(job: Job, indices: np.ndarray) -> dict[str, list[float]]:
    """Mean and standard deviation of numbers to predict in the train split, whose examples are int (examples,)."""
    if LABEL not in job.spec or job.spec[LABEL].dtype != "float32":
        return {}
    values = np.array(read_index(job.location.listing).splits["train"].labels)[indices]
    # The sum of equal numbers is rounded, so their deviation would not be 0.
    deviations = np.where(np.ptp(values, axis=0), values.std(axis=0), 0)
    return {"means": values.mean(axis=0).tolist(), "deviations": deviations.tolist()}


def _read_block_stats(job: Job) -> tuple[dict[str, np.ndarray], dict[str, dict[str, int]], dict[str, np.ndarray]]:
    """Examples, label counts and digests of the examples of each split of the records."""
    # All splits in the order of the records. A billion examples take 85 GB.
    stops = np.cumsum([*job.num_examples.values()])
    examples, digests, is_written = (np.zeros(stops[-1], dtype) for dtype in (KEPT_FIELDS, EXAMPLE["digest"], bool))
    shards = job.shards()
    sizes = np.array([shard["num_records"] for shard in shards])
    starts_by_name = dict(zip((shard["name"] for shard in shards), np.cumsum(sizes) - sizes, strict=True))
    counts = {split: np.zeros(len(job.source.label_names), np.int64) for split in job.num_examples}
    for source_split in job.source.num_examples:
        starts = np.array([starts_by_name[shard["name"]] for shard in job.shards_of(source_split)])
        for content in read_each(job.shared, [block_file(BLOCK_STATS, block) for block in job.blocks(source_split)]):
            stats = np.load(io.BytesIO(content))
            written = stats["examples"]
            positions = starts[written["shard"]] + written["position"]
            digests[positions], is_written[positions] = written["digest"], True
            for name in KEPT_FIELDS.names:
                examples[name][positions] = written[name]
            for split, block_counts in zip(job.splits_of(source_split), stats["counts"], strict=True):
                counts[split] += block_counts
    if not is_written.all():
        raise DamagedArtifactError(f"{job.shared}: expected statistics of {stops[-1]} records, got {is_written.sum()}.")
    parts = (np.split(each, stops[:-1]) for each in (examples, digests))
    by_split, digests_by_split = (dict(zip(job.num_examples, each, strict=True)) for each in parts)
    labels = {split: dict(zip(job.source.label_names, each.tolist(), strict=True)) for split, each in counts.items()}
    return by_split, labels, digests_by_split


def _joint_digest(digests: np.ndarray) -> str:
    """sha256 of the sorted digests. Sorts in place."""
    digests.sort()
    return hashlib.sha256(digests).hexdigest()
