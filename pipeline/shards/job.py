"""The Beam job that turns a source into sharded TFRecord files (source → records → **shards** → …).

Where an example goes is known before anything is read (plan.py): its place in its split follows from the seed and the
keys alone. So each block of examples is read and serialized on one worker, and nothing but small tuples passes between
the steps. Records of one length are put where they belong at once (placed.py):

    plan blocks → write each block → wait for all blocks

Records of any length are sorted block by block, and joined once all blocks are there (merge.py):

    plan blocks → write each block's run → wait for all blocks → merge each shard

Pixels never pass through the runner's shuffle, which some runners hold in memory. For that the storage root must be a
POSIX file system that all workers of a cluster share. Where they share none, an object store has the shards, and the
shuffle brings the records of each together (shuffled.py):

    plan blocks → hand on each block's records by shard → join → write each shard's object

A block or shard that is run twice comes out the same: any runner with any number of workers writes the same files, in
any of the three ways. What the blocks noted is summed up here, in the process that submits the job.
"""

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import apache_beam as beam
import numpy as np

from pipeline import progress
from pipeline.artefacts.space import require_space
from pipeline.config.data import RecordsSettings
from pipeline.errors import RemoteError
from pipeline.records.features import IMAGE, LABEL, TOKENS, spec_to_json
from pipeline.records.reference import CONTENT_DIGESTS
from pipeline.remote.artefacts import receive
from pipeline.shards import presence, shuffled, words, worker_logs
from pipeline.shards.blocks import read_block
from pipeline.shards.engine import running
from pipeline.shards.findings import Noted, find, never_trained_on
from pipeline.shards.merge import merge_shard, run_path, write_run
from pipeline.shards.notes import read_examples, summarise
from pipeline.shards.placed import Placer, create_shards
from pipeline.shards.plan import NOTES, Job
from pipeline.shards.shared import SharedFolder, SharedObjects, Store, left_clear, shared_by_workers
from pipeline.shards.skipped import write_skipped
from pipeline.shards.splits import split_sizes
from pipeline.shards.tfds_metadata import write_tfds_metadata
from pipeline.sources import Location, SourceInfo, example_names
from pipeline.sources.text_blocks import text_digest

# Examples in one Beam element. Large, because TFDS's files can only be read from their beginning: a block's first
# example costs reading all before it. Memory does not grow with it, and one block is decoded on all cores.
BLOCK_EXAMPLES = 25_000
# Of records of any length a block is held in memory, to be sorted; of those that are shuffled, by some runners.
BLOCK_BYTES = 64 * 2**20

_PROGRESS_SECONDS = 0.5
# Each look is a request then, or several.
_PROGRESS_SECONDS_OF_OBJECTS = 5.0
_logger = logging.getLogger(__name__)


def write_records(
    source: SourceInfo,
    settings: RecordsSettings,
    folder: Path,
    notes_folder: Path,
    *,
    location: Location | None = None,
    block_examples: int | None = None,
    store: Store | None = None,
) -> dict:
    """Run the Beam job: every split of ``source`` as sharded TFRecords in ``folder``, with TFDS's metadata.

    Args:
        source: what to write.
        settings: shards per split, share held out for validation, form of the images, seed, runner.
        folder: an empty folder, the records appear here.
        notes_folder: an empty folder of the same file system, for what workers note of each block and for what waits
            to be merged or has been received; the caller removes it.
        location: where the source lies.
        block_examples: examples in one Beam element; changes no byte.
        store: through which workers hand on what they write; None: they see both folders at the same paths.

    Returns:
        What the records' manifest says beyond the files themselves: source, feature spec, label names, per split
        the number of examples, labels, content digest, and per shard its number of records.

    Raises:
        SettingsError: a share leaves a split without an example; images vary in size and are given none; Beam knows no
            such runner or flag.
        PipelineError: the source cannot be read, or the store does not answer.
    """
    examples = source.cut(settings.sequence_length)
    shared = shared_by_workers(notes_folder, store)
    location = location or Location()
    num_examples = split_sizes(examples, location, settings.validation_share)
    job = Job(examples, location, settings, str(folder), shared, block_examples or 0, num_examples)
    if not block_examples:
        job = _of_blocks(job)
    _logger.info("writing %s with Beam's %s", _census(job), settings.runner)
    with left_clear(shared):
        details = _run(job, source, notes_folder)
    for headline, explanation in details["warnings"]:
        _logger.warning("%s: %s", headline, explanation)
    write_tfds_metadata(folder, job.source, job.spec, {split: job.shards(split) for split in job.splits()})
    if job.location.listing:
        write_skipped(folder, job.location.listing)
    return details


def _run(job: Job, source: SourceInfo, notes_folder: Path) -> dict:
    if job.is_fixed and isinstance(job.shared, SharedFolder):
        for source_split in source.num_examples:
            shards = job.shards(*job.splits_of(source_split))
            create_shards(Path(job.folder), shards, job.frame_bytes(source_split))
    presence.expect(job.shared)
    job.leave_places()
    with _reporting_progress(job), running(job.settings) as pipeline:
        build(pipeline, job)
    if isinstance(job.shared, SharedObjects):
        _receive(job, notes_folder)
    details = _details(job, source, sum_up(job))
    details["engine"] = {"runner": job.settings.runner, **presence.signed_in(job.shared)}
    return details


def _receive(job: Job, scratch: Path) -> None:
    """Fetch what workers wrote as objects; a runner that loses a shard must not go unnoticed."""
    digests, sizes = {}, {}
    for shard in job.shards(*job.splits()):
        # Which nobody had a record for.
        if not shard["num_records"]:
            Path(job.folder, shard["name"]).touch()
            continue
        try:
            digest, size = shuffled.noted(job, shard["name"])
        except FileNotFoundError:
            raise RuntimeError(words.shard_missing(shard["name"])) from None
        digests[shard["name"]], sizes[digest] = digest, size
    require_space(Path(job.folder), sum(sizes.values()))
    receive(job.shared.objects, job.shared.files, sizes, scratch, "fetch shards")
    for name, digest in digests.items():
        os.replace(scratch / digest, Path(job.folder, name))


def _of_blocks(job: Job) -> Job:
    """The job in blocks of the size that suits its records."""
    if job.is_fixed and isinstance(job.shared, SharedFolder):
        return replace(job, block_examples=BLOCK_EXAMPLES)
    each = max(map(job.frame_bytes, job.source.num_examples)) if job.is_fixed else job.source.bytes_per_example
    examples = BLOCK_BYTES // max(1, each)
    return replace(job, block_examples=max(1, min(BLOCK_EXAMPLES, examples)))


@contextmanager
def _reporting_progress(job: Job) -> Iterator[None]:
    """Report how far the job is, by its notes, and what workers log: processes that cannot, of whatever runner."""
    total, ended, told = sum(job.source.num_examples.values()), threading.Event(), set()
    examples = {job.note_name(block): job.stop(block) - block[1] for block in job.blocks()}
    seconds = _PROGRESS_SECONDS if isinstance(job.shared, SharedFolder) else _PROGRESS_SECONDS_OF_OBJECTS

    def report() -> None:
        while not ended.wait(seconds):
            # The work continues without a word where the store does not answer this.
            with suppress(RemoteError):
                worker_logs.tell(job.shared, told)
                done = sum(examples.get(name, 0) for name in job.shared.names(f"{NOTES}/"))
                if done < total:
                    progress.tell("records", done, total)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
        with suppress(RemoteError):
            worker_logs.tell(job.shared, told)
    progress.tell("records", total, total)


def build(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """Add the job's steps to a pipeline; the last collection holds what was written."""
    blocks = (
        pipeline
        | "Plan blocks" >> beam.Create(job.blocks())  # (split, start)
        | "Spread blocks" >> beam.Reshuffle()  # (split, start), one worker's work no longer fused to one bundle
    )
    if isinstance(job.shared, SharedObjects):
        return (
            blocks
            | "Shuffle records" >> beam.FlatMap(shuffled.parts, job)  # ((split, shard), part)
            | "Join shards" >> beam.GroupByKey()  # ((split, shard), [part, …])
            | "Write shards" >> beam.Map(shuffled.write_shard, job)  # a shard's name
        )
    blocks = (
        blocks
        | "Write blocks" >> beam.Map(write_block, job)  # (split, start)
        | "Wait for all blocks" >> beam.GroupBy(lambda block: 0)  # (0, [(split, start), …])
        | "Check blocks" >> beam.Map(check_blocks, job)  # 0
    )
    if job.is_fixed:
        return blocks
    return (
        blocks
        | "Plan shards" >> beam.FlatMap(lambda _, job: job.shards(*job.splits()), job)  # a shard's entry
        | "Spread shards" >> beam.Reshuffle()  # a shard's entry
        | "Merge shards" >> beam.Map(merge, job)  # a shard's name
    )


def write_block(block: tuple[str, int], job: Job) -> tuple[str, int]:
    """Read one block, serialize it, and write its records; notes its digests and labels beside."""
    notes, batches = read_block(block, job)
    if job.is_fixed:
        placer = Placer(Path(job.folder), job.shards(*job.splits_of(block[0])))
        for frames, places in batches:
            placer.put(frames, places)
        placer.write()
    else:
        taken = [*batches]
        frames = [record for batch, _ in taken for record in batch]
        write_run(run_path(Path(str(job.shared)), block), frames, np.concatenate([places for _, places in taken]))
    # Last: it says that the block is done.
    notes.write(job.shared, job.note_name(block))
    return block


def check_blocks(together: tuple[int, Iterable[tuple[str, int]]], job: Job) -> int:
    """That every block was written: a runner that loses one must not go unnoticed."""
    nothing, written = together
    if missing := set(job.blocks()) - set(written):
        raise RuntimeError(f"Beam ended the job without the blocks {sorted(missing)}")
    return nothing


def merge(shard: Mapping, job: Job) -> str:
    """Join one shard's records from the runs of its split's blocks."""
    (source_split,) = (name for name in job.source.num_examples if shard["split"] in job.splits_of(name))
    runs = [run_path(Path(str(job.shared)), block) for block in job.blocks(source_split)]
    # Runs count the shards of all splits that theirs is divided among.
    names = [one["name"] for one in job.shards(*job.splits_of(source_split))]
    merge_shard(runs, names.index(shard["name"]), shard["num_records"], Path(job.folder) / shard["name"])
    return shard["name"]


def sum_up(job: Job) -> dict:
    """What the blocks' notes say of each split, and what should be known of the data before figures are believed."""
    notes = {split: [*map(job.note_name, job.blocks(split))] for split in job.source.num_examples}
    # What is predicted of an example is one of these only where it has a label.
    names = job.source.label_names if LABEL in job.spec else ()
    found = find(_noted(job, notes), names, Path(job.folder))
    summary = summarise(job.shared, notes, job.source.label_names)
    counts = {split: entry["label_counts"] for split, entry in summary["splits"].items()}
    return {**summary, "findings": {**found, "never_trained_on": never_trained_on(counts)}}


def _noted(job: Job, notes: Mapping[str, Sequence[str]]) -> Noted:
    """The examples as their blocks noted them, in the order of the records."""
    splits, parts, names = job.splits(), [], []
    for source_split, ours in notes.items():
        within = job.splits_of(source_split)
        shards = job.shards(*within)
        starts = np.concatenate(
            [_starts(shard["num_records"] for shard in shards if shard["split"] == split) for split in within]
        )
        split_of_shard = np.array([splits.index(shard["split"]) for shard in shards], np.uint8)
        shard, place = np.concatenate([*map(job.places, job.blocks(source_split))]).T
        parts.append((split_of_shard[shard], starts[shard] + place, read_examples(job.shared, ours)))
        names.append(example_names(source_split, job.source.num_examples[source_split], job.location.listing))
    split, place, examples = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((place, split))
    return Noted(
        splits=splits,
        split=split[order],
        place=place[order],
        label=examples["label"][order],
        fingerprint=examples["fingerprint"][order],
        names=_Names(names, order),
    )


@dataclass(frozen=True)
class _Names:
    """Of examples in another order, each found when it is asked for: few are, of a billion."""

    parts: Sequence[Sequence[str]]
    order: np.ndarray

    def __getitem__(self, at: int) -> str:
        index = int(self.order[at])
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError(at)


def _starts(sizes: Iterable[int]) -> np.ndarray:
    """Where each shard of a split begins."""
    sizes = [*sizes]
    return np.cumsum([0, *sizes[:-1]])


def _details(job: Job, source: SourceInfo, summary: Mapping[str, dict]) -> dict:
    records = {
        split: _of_records(job, source_split)
        for source_split in job.source.num_examples
        for split in job.splits_of(source_split)
    }
    # Of a text that of the whole: how it is cut into examples says nothing about it.
    text = {"text": text_digest(source, Path(job.location.artefact))} if TOKENS in job.spec else None
    digests = text or summary["source_digests"]
    return {
        "source": source.to_json(),
        "feature_spec": spec_to_json(job.spec),
        **({"image": {"shape": list(job.form.shape(source.features[IMAGE])), **vars(job.form)}} if job.form else {}),
        "label_names": list(job.source.label_names),
        "splits": {split: {**summary["splits"][split], **records[split]} for split in job.splits()},
        "findings": summary["findings"],
        "warnings": words.warnings(summary["findings"], job.num_examples.get("test", 0), has_labels=LABEL in job.spec),
        # Of the source's splits: what was held out of train counts with the rest of it.
        "dataset_verified": job.is_fixed and digests == CONTENT_DIGESTS.get(job.source.dataset),
        "files": {
            shard["name"]: {key: shard[key] for key in ("split", "shard_index", "num_records")}
            for shard in job.shards(*job.splits())
        },
    }


def _of_records(job: Job, source_split: str) -> dict:
    key_bytes = {"key_bytes": job.key_bytes(source_split)}
    return {**key_bytes, "rows": job.layout(source_split).rows.to_json()} if job.is_fixed else key_bytes


def _census(job: Job) -> str:
    counts = ", ".join(f"{count:,} {split}" for split, count in job.num_examples.items())
    return f"{job.source.dataset} ({counts} examples)"
