"""Shards: the Beam job that turns a source into sharded TFRecord files (source → records → shards → …).

Where an example goes is known before anything is read: its place in its split follows from the seed and its key
alone. So the job has two halves and nothing but small tuples between them:

    plan blocks → spill each block (read, decode, append rows to a file) → wait for all blocks of a split
                → write each shard (fetch its rows from the spilled blocks, in order) → summarise

Pixels never pass through the runner's shuffle, which some runners hold in memory; any runner with any number of
workers writes the same bytes. On a cluster the storage root must be a file system that all workers share.

The finished folder is also a dataset that TensorFlow Datasets reads by ``tfds.builder_from_directory``: this is the
one place that writes TFDS's metadata.
"""

import hashlib
import itertools
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import apache_beam as beam
import numpy as np
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline.config import RecordsSettings, refuse
from pipeline.records import feature_spec, serialize, write_tfrecord
from pipeline.sources import CONTENT_DIGESTS, SPLITS, SourceInfo
from pipeline.sources.blocks import read_block
from pipeline.workers import watching_workers

# Examples in one Beam element: large enough that Beam's cost per element vanishes, small enough (15 MB of CIFAR-10)
# that a worker's memory stays flat.
BLOCK_EXAMPLES = 5_000

_LABEL_BYTES = 8
_SUMMARY = "summary.json"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What every step of the Beam job needs to know; small, and plain data, so that any runner can ship it."""

    source: SourceInfo
    tfds_data_dir: str
    settings: RecordsSettings
    folder: str
    spill_folder: str
    block_examples: int = BLOCK_EXAMPLES

    def block_starts(self, split: str) -> range:
        """First example of each block of a split."""
        return range(0, self.source.num_examples[split], self.block_examples)

    def spill_path(self, split: str, start: int) -> Path:
        """The file with the rows (label, pixels) of the block that begins at ``start``."""
        return Path(self.spill_folder) / f"{split}-{start:012d}.rows"

    def row_bytes(self) -> int:
        """Bytes of one spilled row: the label as int64, then the pixels."""
        return _LABEL_BYTES + int(np.prod(self.source.image_shape))


def write_records(
    source: SourceInfo,
    settings: RecordsSettings,
    folder: Path,
    spill_folder: Path,
    *,
    tfds_data_dir: str = "",
    block_examples: int = BLOCK_EXAMPLES,
) -> dict:
    """Run the Beam job: every split of ``source`` as sharded TFRecords in ``folder``, with TFDS's metadata.

    Args:
        source: what to write.
        settings: shards per split, seed, runner.
        folder: an empty folder, the records appear here.
        spill_folder: an empty folder on a file system with room for the decoded pixels; the caller removes it.
        tfds_data_dir: where the prepared dataset lies; "" for TFDS's own default.
        block_examples: examples in one Beam element; changes no byte.

    Returns:
        What the records' manifest says beyond the files themselves: source, feature spec, label names, per split
        the number of examples, labels, content digest, and per shard its number of records.

    Raises:
        PipelineError: the source cannot be read.
    """
    job = Job(source, tfds_data_dir, settings, str(folder), str(spill_folder), block_examples)
    _logger.info("writing %s with Beam's %s", _census(source), settings.runner)
    with (
        watching_workers(),
        beam.Pipeline(runner=make_runner(settings), options=PipelineOptions(settings.beam_flags())) as pipeline,
    ):
        build(pipeline, job)
    summary_path = spill_folder / _SUMMARY
    shards = json.loads(summary_path.read_text(encoding="utf-8"))
    _write_tfds_metadata(job, shards)
    return _details(job, shards)


def make_runner(settings: RecordsSettings) -> PipelineRunner:
    """The Beam runner of the settings.

    Raises:
        SettingsError: Beam knows no such runner, or its packages are not installed.
    """
    try:
        return create_runner(settings.runner)
    except (ValueError, AttributeError, ImportError) as error:
        refuse(
            "Records", "runner", "the name or dotted class of an installed Beam runner", settings.runner, f" {error}"
        )


def build(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """Add the job's steps to a pipeline; the last collection holds one element, the path of the summary."""
    blocks = [(split, start) for split in SPLITS for start in job.block_starts(split)]
    return (
        pipeline
        | "Plan blocks" >> beam.Create(blocks)  # (split, start)
        | "Spread blocks" >> beam.Reshuffle()  # (split, start), one worker's work no longer fused to one bundle
        | "Spill blocks" >> beam.FlatMap(spill_block, job)  # ((split, shard_index), start), for every shard
        | "Wait for all blocks" >> beam.GroupByKey()  # ((split, shard_index), [start, …])
        | "Write shards" >> beam.Map(write_shard, job)  # description of the shard, a dict
        | "Bring together" >> beam.GroupBy(lambda shard: 0)  # (0, [description, …])
        | "Write summary" >> beam.Map(write_summary, job)  # path of the summary
    )


def spill_block(block: tuple[str, int], job: Job) -> Iterator[tuple[tuple[str, int], int]]:
    """Read one block and put its rows on disk; tells every shard of the split that the block is there."""
    split, start = block
    stop = min(start + job.block_examples, job.source.num_examples[split])
    images, labels = read_block(job.source, job.tfds_data_dir, split, start, stop)
    rows = np.empty((stop - start, job.row_bytes()), np.uint8)
    rows[:, :_LABEL_BYTES] = labels.astype("<i8").view(np.uint8).reshape(-1, _LABEL_BYTES)
    rows[:, _LABEL_BYTES:] = images.reshape(stop - start, -1)
    path = job.spill_path(split, start)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    # Not tofile(): where the disk is full it raises an error that does not say so.
    temporary.write_bytes(rows.data)
    os.replace(temporary, path)
    for shard_index in range(job.settings.num_shards(split)):
        yield (split, shard_index), start


def write_shard(waited: tuple[tuple[str, int], Iterable[int]], job: Job) -> dict:
    """Write one TFRecord file from the spilled blocks; returns its description for the summary."""
    (split, shard_index), starts = waited
    num_shards = job.settings.num_shards(split)
    name = shard_name(job.source.dataset, split, shard_index, num_shards)
    order = example_order(split, job.source.num_examples[split], job.settings.seed)
    bounds = shard_bounds(len(order), num_shards)
    label_counts: Counter[int] = Counter()
    digests: list[bytes] = []

    def records() -> Iterator[bytes]:
        for index, label, pixels in _fetch(job, split, set(starts), order[slice(*bounds[shard_index])]):
            label_counts[label] += 1
            digests.append(content_digest(label, pixels, len(job.source.label_names)))
            yield serialize(pixels, label, example_key(split, index))

    write_tfrecord(Path(job.folder) / name, records())
    return {
        "name": name,
        "split": split,
        "shard_index": shard_index,
        "num_records": len(digests),
        "label_counts": dict(label_counts),
        "digests": b"".join(sorted(digests)).hex(),
    }


def write_summary(together: tuple[int, Iterable[dict]], job: Job) -> str:
    """Join the shards' descriptions into one file: on a cluster the submitting process sees nothing but files."""
    _, shards = together
    path = Path(job.spill_folder) / _SUMMARY
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    ordered = sorted(shards, key=lambda shard: (shard["split"], shard["shard_index"]))
    temporary.write_text(json.dumps(ordered), encoding="utf-8")
    os.replace(temporary, path)
    return str(path)


def example_key(split: str, index: int) -> str:
    """The stable id of the ``index``-th example of a split in the source's own order."""
    return f"{split}-{index:09d}"


@cache
def example_order(split: str, num_examples: int, seed: int) -> np.ndarray:
    """The seeded shuffle: int64 (num_examples,), the source's index of the example at each place.

    Keys are ranked by a keyed hash, not by a random generator's stream: the order holds for every version of NumPy.
    """
    hash_key = seed.to_bytes(8, "little")
    ranks = b"".join(
        hashlib.blake2b(example_key(split, index).encode(), digest_size=8, key=hash_key).digest()
        for index in range(num_examples)
    )
    return np.argsort(np.frombuffer(ranks, ">u8"), kind="stable")


def shard_bounds(num_examples: int, num_shards: int) -> list[tuple[int, int]]:
    """(first, one past last) place of each shard; sizes differ by one at the most."""
    cuts = [shard * num_examples // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(cuts))


def shard_name(dataset: str, split: str, shard_index: int, num_shards: int) -> str:
    """TFDS's file name, ``cifar10-train.tfrecord-00003-of-00016``."""
    return f"{dataset.split('/')[0]}-{split}.tfrecord-{shard_index:05d}-of-{num_shards:05d}"


def content_digest(label: int, pixels: bytes, num_labels: int) -> bytes:
    """sha256 of label and pixels; the label takes one byte where all labels fit, else eight."""
    width = 1 if num_labels <= 256 else _LABEL_BYTES
    return hashlib.sha256(label.to_bytes(width, "little") + pixels).digest()


def _fetch(job: Job, split: str, starts: set[int], indices: np.ndarray) -> Iterator[tuple[int, int, bytes]]:
    """(index, label, pixels) of each index, read row by row from the spilled blocks."""
    width = job.row_bytes()
    # Positioned reads, not a memory map: mapped pages count as this process's memory until it ends.
    files = {start: os.open(job.spill_path(split, start), os.O_RDONLY) for start in starts}
    try:
        for index in indices.tolist():
            start = index - index % job.block_examples
            row = os.pread(files[start], width, (index - start) * width)
            yield index, int.from_bytes(row[:_LABEL_BYTES], "little"), row[_LABEL_BYTES:]
    finally:
        for descriptor in files.values():
            os.close(descriptor)


def _details(job: Job, shards: list[dict]) -> dict:
    splits = {split: _describe_split(job, split, shards) for split in SPLITS}
    expected = CONTENT_DIGESTS.get(job.source.dataset, {})
    return {
        "source": job.source.to_json(),
        "feature_spec": feature_spec(job.source.image_shape),
        "label_names": list(job.source.label_names),
        "splits": splits,
        "dataset_verified": bool(expected) and all(splits[s]["content_digest"] == expected[s] for s in SPLITS),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")} for shard in shards
        },
    }


def _describe_split(job: Job, split: str, shards: list[dict]) -> dict:
    ours = [shard for shard in shards if shard["split"] == split]
    digests = bytes.fromhex("".join(shard["digests"] for shard in ours))
    counts = sum((Counter({int(k): n for k, n in shard["label_counts"].items()}) for shard in ours), Counter())
    every_digest = sorted(digests[place : place + 32] for place in range(0, len(digests), 32))
    return {
        "num_examples": sum(shard["num_records"] for shard in ours),
        "label_counts": {name: counts[label] for label, name in enumerate(job.source.label_names)},
        "content_digest": hashlib.sha256(b"".join(every_digest)).hexdigest(),
    }


def _write_tfds_metadata(job: Job, shards: list[dict]) -> None:
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Tensor(shape=job.source.image_shape, dtype=np.uint8, encoding="bytes"),
            "key": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=list(job.source.label_names)),
        }
    )
    template = tfds.core.ShardedFileTemplate(
        data_dir=job.folder, dataset_name=job.source.dataset.split("/")[0], filetype_suffix="tfrecord"
    )
    tfds.folder_dataset.write_metadata(
        data_dir=job.folder,
        features=features,
        split_infos=[_split_info(job, split, shards, template) for split in SPLITS],
        version=job.source.version if job.source.version.count(".") == 2 else f"{job.source.version}.0.0",
        supervised_keys=("image", "label"),
        check_data=False,
    )


def _split_info(job: Job, split: str, shards: list[dict], template: object) -> tfds.core.SplitInfo:
    ours = [shard for shard in shards if shard["split"] == split]
    return tfds.core.SplitInfo(
        name=split,
        shard_lengths=[shard["num_records"] for shard in ours],
        num_bytes=sum((Path(job.folder) / shard["name"]).stat().st_size for shard in ours),
        filename_template=template,
    )


def _census(source: SourceInfo) -> str:
    counts = ", ".join(f"{source.num_examples[split]:,} {split}" for split in SPLITS)
    return f"{source.dataset} ({counts} examples)"
