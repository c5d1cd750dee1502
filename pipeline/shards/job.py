"""The Beam job that turns a source into sharded TFRecord files (source → records → shards → …).

Where an example goes is known before anything is read: its place in its split follows from the seed and its key
alone, and all records of a split have one length. So each block of examples is read, decoded, framed and put where
it belongs in its shards, and nothing but small tuples passes between the steps:

    plan blocks → write each block (read, decode, frame, place) → wait for all blocks → summarise

Pixels never pass through the runner's shuffle, which some runners hold in memory, and are written once. A block that
is run twice puts the same bytes in the same places: any runner with any number of workers writes the same files. On a
cluster the storage root must be a POSIX file system that all workers share.

With ``validation_share`` a part of the source's train split goes to shards of its own, as the records' third split. A
block is of one of the source's splits; its examples are divided on the way.
"""

import hashlib
import itertools
import json
import logging
import operator
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner, create_runner

from pipeline import progress
from pipeline.config import RecordsSettings, closest, refuse
from pipeline.records.fixed import RecordLayout, example_keys, feature_spec
from pipeline.records.keys import split_sizes
from pipeline.shards.order import example_places, shard_bounds
from pipeline.shards.tfds_metadata import shard_name, write_tfds_metadata
from pipeline.shards.workers import watching_workers
from pipeline.sources import CONTENT_DIGESTS, SPLITS, SourceInfo
from pipeline.sources.blocks import read_batches

# Examples in one Beam element. Large, because TFDS's files can only be read from their beginning: a block's first
# example costs reading all before it. Memory does not grow with it, and one block is decoded on all cores.
BLOCK_EXAMPLES = 25_000

# Of framed records that wait for each other, so that a shard is opened once for many. Little: memory that is touched
# for the first time costs more than opening files.
_PENDING_BYTES = 16 * 2**20

_SUMMARY = "summary.json"
_DIGEST_BYTES = hashlib.sha256().digest_size
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
        """Split of the source and first example of each block."""
        return [
            (split, start)
            for split in SPLITS
            for start in range(0, self.source.num_examples[split], self.block_examples)
        ]

    def num_examples(self) -> dict[str, int]:
        """Split of the records → number of examples."""
        return split_sizes(self.source.num_examples, self.settings.validation_share)

    def splits_of(self, source_split: str) -> tuple[str, ...]:
        """The splits of the records that a split of the source is divided among."""
        divided = source_split == "train" and self.settings.validation_share
        return ("train", "validation") if divided else (source_split,)

    def shards(self, *splits: str) -> list[dict]:
        """Name, split, index and number of records of each shard, in order."""
        num_examples, num_shards = self.num_examples(), self.settings.num_shards
        return [
            {
                "name": shard_name(self.source.dataset, split, shard_index, num_shards(split)),
                "split": split,
                "shard_index": shard_index,
                "num_records": stop - first,
            }
            for split in splits
            for shard_index, (first, stop) in enumerate(shard_bounds(num_examples[split], num_shards(split)))
        ]

    def places(self, source_split: str) -> np.ndarray:
        """Shard and place of each example of a split of the source, as ``example_places`` gives them."""
        splits = tuple((split, self.settings.num_shards(split)) for split in self.splits_of(source_split))
        num_examples = self.source.num_examples[source_split]
        return example_places(splits, num_examples, self.settings.seed, self.settings.validation_share)

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
        settings: shards per split, share held out for validation, seed, runner.
        folder: an empty folder, the records appear here.
        notes_folder: an empty folder that workers share, for what they note of each block; the caller removes it.
        tfds_data_dir: where the prepared dataset lies; "" for TFDS's own default.
        block_examples: examples in one Beam element; changes no byte.

    Returns:
        What the records' manifest says beyond the files themselves: source, feature spec, label names, per split
        the number of examples, labels, content digest, and per shard its number of records.

    Raises:
        SettingsError: ``validation_share`` leaves a split without an example; Beam knows no such runner or flag.
        PipelineError: the source cannot be read.
    """
    job = Job(source, tfds_data_dir, settings, str(folder), str(notes_folder), block_examples)
    runner = make_runner(settings)
    options = make_options(settings, runner)
    _logger.info("writing %s with Beam's %s", _census(job), settings.runner)
    _lay_out(job)
    with (
        watching_workers(),
        _telling_progress(job),
        beam.Pipeline(runner=runner, options=options) as pipeline,
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


def make_options(settings: RecordsSettings, runner: PipelineRunner) -> PipelineOptions:
    """The flags of the settings, as Beam reads them.

    Raises:
        SettingsError: neither Beam nor the runner knows a flag; Beam itself would warn and leave it out.
    """
    options = PipelineOptions(settings.beam_flags())
    known = options.get_all_options()
    # A job server has flags of its own, and says which only once it runs.
    if not isinstance(runner, PortableRunner):
        for name in options.get_all_options(retain_unknown_options=True).keys() - known.keys():
            hint = closest(name, [*known]).replace("'", "'--", 1)
            refuse("Records", "runner_options", "flags that Beam knows", f"--{name}", hint)
    return options


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
    source_split, start = block
    stop = min(start + job.block_examples, job.source.num_examples[source_split])
    splits = job.splits_of(source_split)
    shards, places = job.shards(*splits), job.places(source_split)
    split_of_shard = np.array([splits.index(shard["split"]) for shard in shards])
    # A held-out example keeps its key: one layout for all splits that the block is divided among.
    layout, num_labels = job.layout(source_split), len(job.source.label_names)
    digests, label_counts = [bytearray() for _ in splits], np.zeros((len(splits), num_labels), np.int64)
    pending = []
    for images, labels in read_batches(job.source, job.tfds_data_dir, source_split, start, stop):
        indices = np.arange(start, start + len(labels))
        pending.append((layout.encode(images, labels, example_keys(source_split, indices)), places[indices]))
        if sum(frames.nbytes for frames, _ in pending) >= _PENDING_BYTES:
            _put(Path(job.folder), shards, pending)
            pending = []
        split = split_of_shard[places[indices, 0]]
        for at, digest in zip(split.tolist(), content_digests(images, labels, num_labels), strict=True):
            digests[at] += digest
        np.add.at(label_counts, (split, labels), 1)
        start += len(labels)
    _put(Path(job.folder), shards, pending)
    note = {
        split: {"label_counts": counts.tolist(), "digests": found.hex()}
        for split, counts, found in zip(splits, label_counts, digests, strict=True)
    }
    _write_json(job.note_path(*block), note)
    return block


def write_summary(together: tuple[int, Iterable[tuple[str, int]]], job: Job) -> str:
    """Join the blocks' notes into one file: on a cluster the submitting process sees nothing but files."""
    _, written = together
    missing = set(job.blocks()) - set(written)
    if missing:
        raise RuntimeError(f"Beam ended the job without the blocks {sorted(missing)}")
    path = Path(job.notes_folder) / _SUMMARY
    _write_json(path, _summarise(job))
    return str(path)


def _summarise(job: Job) -> dict:
    """What the manifest says of each split, and the content digest of each split of the source."""
    splits, source_digests = {}, {}
    for source_split in SPLITS:
        blocks = [block for block in job.blocks() if block[0] == source_split]
        notes = [json.loads(job.note_path(*block).read_text(encoding="utf-8")) for block in blocks]
        digests = {
            split: b"".join(bytes.fromhex(note[split]["digests"]) for note in notes)
            for split in job.splits_of(source_split)
        }
        for split, found in digests.items():
            counts = np.sum([note[split]["label_counts"] for note in notes], axis=0).tolist()
            splits[split] = {
                "num_examples": len(found) // _DIGEST_BYTES,
                "label_counts": dict(zip(job.source.label_names, counts, strict=True)),
                "content_digest": _joint_digest(found),
            }
        source_digests[source_split] = _joint_digest(b"".join(digests.values()))
    return {"splits": splits, "source_digests": source_digests}


def _joint_digest(digests: bytes) -> str:
    """The digest of examples in any order: hex sha256 of their own digests, sorted."""
    every_one = sorted(digests[place : place + _DIGEST_BYTES] for place in range(0, len(digests), _DIGEST_BYTES))
    return hashlib.sha256(b"".join(every_one)).hexdigest()


def content_digests(images: np.ndarray, labels: np.ndarray, num_labels: int) -> Iterator[bytes]:
    """sha256 of label and pixels of each example; the label takes one byte where all labels fit, else eight."""
    label_bytes = labels.astype("u1" if num_labels <= 256 else "<u8")[:, None].view(np.uint8)
    rows = np.concatenate([label_bytes, images.reshape(len(images), -1)], axis=1)
    return (hashlib.sha256(row).digest() for row in rows)


def _lay_out(job: Job) -> None:
    """Create every shard as long as it will be in the end: a block then puts its records anywhere in it."""
    for split in job.num_examples():
        frame_bytes = job.layout(split).frame_bytes
        for shard in job.shards(split):
            with (Path(job.folder) / shard["name"]).open("wb") as file:
                file.truncate(shard["num_records"] * frame_bytes)


def _put(folder: Path, shards: Sequence[Mapping], batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Put batches of framed records where they belong, shard by shard: there may be more than a process may open.

    ``batches`` are of uint8 (batch, frame_bytes) and int64 (batch, 2), the shard and the place in it.
    """
    found = sorted(
        (shard, place, batch, row)
        for batch, (_, places) in enumerate(batches)
        for row, (shard, place) in enumerate(places.tolist())
    )
    for shard, group in itertools.groupby(found, key=operator.itemgetter(0)):
        file = os.open(folder / shards[shard]["name"], os.O_WRONLY)
        try:
            for _, place, batch, row in group:
                frame = batches[batch][0][row]
                _write_all(file, frame, place * len(frame))
        finally:
            os.close(file)


def _write_all(file: int, content: np.ndarray, offset: int) -> None:
    """Positioned writes, not a memory map: mapped pages count as this process's memory, and a full disk kills it."""
    written = os.pwrite(file, content, offset)
    while written < len(content):
        written += os.pwrite(file, content[written:], offset + written)


def _write_json(path: Path, content: object) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)


def _details(job: Job, summary: Mapping[str, dict]) -> dict:
    expected = CONTENT_DIGESTS.get(job.source.dataset)
    return {
        "source": job.source.to_json(),
        "feature_spec": feature_spec(job.source.image_shape),
        "label_names": list(job.source.label_names),
        "splits": summary["splits"],
        # Of the source's splits: what was held out of train counts with the rest of it.
        "dataset_verified": summary["source_digests"] == expected,
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for shard in job.shards(*summary["splits"])
        },
    }


def _write_tfds_metadata(job: Job) -> None:
    splits = job.num_examples()
    lengths = {split: [shard["num_records"] for shard in job.shards(split)] for split in splits}
    frame_bytes = {split: job.layout(split).frame_bytes for split in splits}
    write_tfds_metadata(Path(job.folder), job.source, lengths, frame_bytes)


def _census(job: Job) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in job.num_examples().items())
    return f"{job.source.dataset} ({counts} examples)"
