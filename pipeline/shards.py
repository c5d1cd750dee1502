"""Shards: the Beam job that turns a source into sharded TFRecord files (source → records → shards → …).

Where an example goes is known before anything is read: its place in its split follows from the seed and its key
alone, and all records of a split have one length. So each block of examples is read, decoded, framed and put where
it belongs in its shards, and nothing but small tuples passes between the steps:

    plan blocks → write each block (read, decode, frame, place) → wait for all blocks → summarise

Pixels never pass through the runner's shuffle, which some runners hold in memory, and are written once. A block that
is run twice puts the same bytes in the same places: any runner with any number of workers writes the same files. On a
cluster the storage root must be a POSIX file system that all workers share.

The finished folder is also a dataset that TensorFlow Datasets reads by ``tfds.builder_from_directory``: this is the
one place that writes TFDS's metadata.
"""

import hashlib
import itertools
import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import apache_beam as beam
import numpy as np
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline import progress
from pipeline.config import RecordsSettings, refuse
from pipeline.records import RecordLayout, example_key, example_keys, feature_spec
from pipeline.sources import CONTENT_DIGESTS, SPLITS, SourceInfo
from pipeline.sources.blocks import read_batches
from pipeline.workers import watching_workers

# Examples in one Beam element. Large, because TFDS's files can only be read from their beginning: a block's first
# example costs reading all before it. Memory does not grow with it, and one block is decoded on all cores.
BLOCK_EXAMPLES = 25_000

_SUMMARY = "summary.json"
_PROGRESS_SECONDS = 0.5
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What every step of the Beam job needs to know; small, and plain data, so that any runner can ship it."""

    source: SourceInfo
    tfds_data_dir: str
    settings: RecordsSettings
    folder: str
    notes_folder: str
    block_examples: int = BLOCK_EXAMPLES

    def blocks(self) -> list[tuple[str, int]]:
        """Split and first example of each block."""
        return [
            (split, start)
            for split in SPLITS
            for start in range(0, self.source.num_examples[split], self.block_examples)
        ]

    def shards(self, split: str) -> list[dict]:
        """Name, split, index and number of records of each shard, in order."""
        num_shards = self.settings.num_shards(split)
        return [
            {
                "name": shard_name(self.source.dataset, split, shard_index, num_shards),
                "split": split,
                "shard_index": shard_index,
                "num_records": stop - first,
            }
            for shard_index, (first, stop) in enumerate(shard_bounds(self.source.num_examples[split], num_shards))
        ]

    def places(self, split: str) -> np.ndarray:
        """Shard and place of each example of a split, as ``example_places`` gives them."""
        settings = self.settings
        return example_places(split, self.source.num_examples[split], settings.num_shards(split), settings.seed)

    def layout(self, split: str) -> RecordLayout:
        """How the split's records lie in their files."""
        return RecordLayout(self.source.image_shape, len(self.source.label_names), split)

    def note_path(self, split: str, start: int) -> Path:
        """The file with the digests and label counts of the block that begins at ``start``."""
        return Path(self.notes_folder) / f"{split}-{start:012d}.json"


def write_records(
    source: SourceInfo,
    settings: RecordsSettings,
    folder: Path,
    notes_folder: Path,
    *,
    tfds_data_dir: str = "",
    block_examples: int = BLOCK_EXAMPLES,
) -> dict:
    """Run the Beam job: every split of ``source`` as sharded TFRecords in ``folder``, with TFDS's metadata.

    Args:
        source: what to write.
        settings: shards per split, seed, runner.
        folder: an empty folder, the records appear here.
        notes_folder: an empty folder that workers share, for what they note of each block; the caller removes it.
        tfds_data_dir: where the prepared dataset lies; "" for TFDS's own default.
        block_examples: examples in one Beam element; changes no byte.

    Returns:
        What the records' manifest says beyond the files themselves: source, feature spec, label names, per split
        the number of examples, labels, content digest, and per shard its number of records.

    Raises:
        PipelineError: the source cannot be read.
    """
    job = Job(source, tfds_data_dir, settings, str(folder), str(notes_folder), block_examples)
    _logger.info("writing %s with Beam's %s", _census(source), settings.runner)
    with (
        watching_workers(),
        _telling_progress(job),
        beam.Pipeline(runner=make_runner(settings), options=PipelineOptions(settings.beam_flags())) as pipeline,
    ):
        build(pipeline, job)
    _write_tfds_metadata(job)
    return _details(job, json.loads((notes_folder / _SUMMARY).read_text(encoding="utf-8")))


@contextmanager
def _telling_progress(job: Job) -> Iterator[None]:
    """Tell how far the job is, by its notes: workers, of whatever runner, are processes that cannot tell."""
    total, ended = sum(job.source.num_examples.values()), threading.Event()

    def examples(block: tuple[str, int]) -> int:
        split, start = block
        return min(job.block_examples, job.source.num_examples[split] - start)

    def tell() -> None:
        while not ended.wait(_PROGRESS_SECONDS):
            done = sum(examples(block) for block in job.blocks() if job.note_path(*block).exists())
            if done < total:
                progress.tell("records", done, total)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
    progress.tell("records", total, total)


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
    return (
        pipeline
        | "Plan blocks" >> beam.Create(job.blocks())  # (split, start)
        | "Spread blocks" >> beam.Reshuffle()  # (split, start), one worker's work no longer fused to one bundle
        | "Write blocks" >> beam.Map(write_block, job)  # (split, start)
        | "Wait for all blocks" >> beam.GroupBy(lambda block: 0)  # (0, [(split, start), …])
        | "Write summary" >> beam.Map(write_summary, job)  # path of the summary
    )


def write_block(block: tuple[str, int], job: Job) -> tuple[str, int]:
    """Read one block and put its records where they belong in the shards; notes its digests and labels beside."""
    split, start = block
    stop = min(start + job.block_examples, job.source.num_examples[split])
    layout, places = job.layout(split), job.places(split)
    digests, label_counts = bytearray(), np.zeros(len(job.source.label_names), np.int64)
    with ExitStack() as stack:
        files = _open_shards(job, split, stack)
        for images, labels in read_batches(job.source, job.tfds_data_dir, split, start, stop):
            indices = np.arange(start, start + len(labels))
            frames = layout.encode(images, labels, example_keys(split, indices))
            for frame, (shard, place) in zip(frames, places[indices].tolist(), strict=True):
                _write_all(files[shard], frame, place * layout.frame_bytes)
            for digest in content_digests(images, labels, len(job.source.label_names)):
                digests += digest
            label_counts += np.bincount(labels, minlength=len(label_counts))
            start += len(labels)
    note = {"label_counts": label_counts.tolist(), "digests": digests.hex()}
    _write_json(job.note_path(*block), note)
    return block


def write_summary(together: tuple[int, Iterable[tuple[str, int]]], job: Job) -> str:
    """Join the blocks' notes into one file: on a cluster the submitting process sees nothing but files."""
    _, written = together
    missing = set(job.blocks()) - set(written)
    if missing:
        raise RuntimeError(f"Beam ended the job without the blocks {sorted(missing)}")
    path = Path(job.notes_folder) / _SUMMARY
    _write_json(path, {split: _summarise(job, split) for split in SPLITS})
    return str(path)


def _summarise(job: Job, split: str) -> dict:
    starts = [start for block_split, start in job.blocks() if block_split == split]
    notes = [json.loads(job.note_path(split, start).read_text(encoding="utf-8")) for start in starts]
    digests = b"".join(bytes.fromhex(note["digests"]) for note in notes)
    every_digest = sorted(digests[place : place + 32] for place in range(0, len(digests), 32))
    counts = np.sum([note["label_counts"] for note in notes], axis=0).tolist()
    return {
        "num_examples": len(every_digest),
        "label_counts": dict(zip(job.source.label_names, counts, strict=True)),
        "content_digest": hashlib.sha256(b"".join(every_digest)).hexdigest(),
    }


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


def content_digests(images: np.ndarray, labels: np.ndarray, num_labels: int) -> Iterator[bytes]:
    """sha256 of label and pixels of each example; the label takes one byte where all labels fit, else eight."""
    label_bytes = labels.astype("u1" if num_labels <= 256 else "<u8")[:, None].view(np.uint8)
    rows = np.concatenate([label_bytes, images.reshape(len(images), -1)], axis=1)
    return (hashlib.sha256(row).digest() for row in rows)


@cache
def example_places(split: str, num_examples: int, num_shards: int, seed: int) -> np.ndarray:
    """int64 (num_examples, 2): the shard of each of the source's examples, and its place among the shard's records."""
    order = example_order(split, num_examples, seed)
    places = np.empty((num_examples, 2), np.int64)
    for shard_index, (first, stop) in enumerate(shard_bounds(num_examples, num_shards)):
        places[order[first:stop], 0] = shard_index
        places[order[first:stop], 1] = np.arange(stop - first)
    return places


def _open_shards(job: Job, split: str, stack: ExitStack) -> list[int]:
    """Descriptors of a split's shard files, each as long as it will be in the end."""
    files = []
    for shard in job.shards(split):
        files.append(os.open(Path(job.folder) / shard["name"], os.O_WRONLY | os.O_CREAT, 0o666))
        stack.callback(os.close, files[-1])
        # The same for every block: it cuts nothing off what another has written.
        os.ftruncate(files[-1], shard["num_records"] * job.layout(split).frame_bytes)
    return files


def _write_all(file: int, content: np.ndarray, offset: int) -> None:
    """Positioned writes, not a memory map: mapped pages count as this process's memory, and a full disk kills it."""
    written = os.pwrite(file, content, offset)
    while written < len(content):
        written += os.pwrite(file, content[written:], offset + written)


def _write_json(path: Path, content: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)


def _details(job: Job, splits: dict) -> dict:
    expected = CONTENT_DIGESTS.get(job.source.dataset, {})
    return {
        "source": job.source.to_json(),
        "feature_spec": feature_spec(job.source.image_shape),
        "label_names": list(job.source.label_names),
        "splits": splits,
        "dataset_verified": bool(expected) and all(splits[s]["content_digest"] == expected[s] for s in SPLITS),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for split in SPLITS
            for shard in job.shards(split)
        },
    }


def _write_tfds_metadata(job: Job) -> None:
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
        split_infos=[_split_info(job, split, template) for split in SPLITS],
        version=job.source.version if job.source.version.count(".") == 2 else f"{job.source.version}.0.0",
        supervised_keys=("image", "label"),
        check_data=False,
    )


def _split_info(job: Job, split: str, template: object) -> tfds.core.SplitInfo:
    lengths = [shard["num_records"] for shard in job.shards(split)]
    return tfds.core.SplitInfo(
        name=split,
        shard_lengths=lengths,
        num_bytes=sum(lengths) * job.layout(split).frame_bytes,
        filename_template=template,
    )


def _census(source: SourceInfo) -> str:
    counts = ", ".join(f"{source.num_examples[split]:,} {split}" for split in SPLITS)
    return f"{source.dataset} ({counts} examples)"
