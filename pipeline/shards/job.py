"""The Beam job that writes a source as sharded TFRecord files.

The positions of all examples are computed before any example is read (``plan.py``). Only small tuples pass between the
steps. All writers (``writers.py``) write the same files, with any runner and any number of workers.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import apache_beam as beam
import numpy as np

from pipeline import progress
from pipeline.errors import EngineUnavailableError, RemoteError
from pipeline.records.example import frame, serialize
from pipeline.records.features import IMAGE, KEY, LABEL, content_name
from pipeline.settings.data import RecordsSettings
from pipeline.shards import workers
from pipeline.shards.engine import running
from pipeline.shards.metadata import write_croissant, write_tfds_metadata
from pipeline.shards.plan import BLOCK_STATS, Block, Job, block_file
from pipeline.shards.shared import Store, shared_by_workers
from pipeline.shards.splits import split_sizes
from pipeline.shards.summary import BlockStats, summarize
from pipeline.shards.writers import Batch, ShardId, writer_of
from pipeline.sources import Location, SourceInfo
from pipeline.sources.source import read_batches

_logger = logging.getLogger(__name__)


def write_records(
    source: SourceInfo,
    settings: RecordsSettings,
    folder: Path,
    scratch_folder: Path,
    *,
    location: Location | None = None,
    block_examples: int | None = None,
    store: Store | None = None,
) -> dict:
    """Write every split of ``source`` as sharded TFRecords, with metadata for TFDS and Croissant.

    Args:
        source: Description of the source.
        settings: Settings of the records.
        folder: Empty folder for the records.
        scratch_folder: Empty folder of the same file system for temporary files. The caller removes it.
        location: Paths of the source.
        block_examples: Examples per Beam element. It does not change the records.
        store: The object store that workers share. None if they can access both folders at the same paths.

    Returns:
        The details of the records' manifest. See ``summarize``.
    """
    examples, location = source.cut(settings), location or Location()
    num_examples = split_sizes(examples, location, settings.validation_share)
    counts = ", ".join(f"{count:,} {split}" for split, count in num_examples.items())
    _logger.info("Writing the records of %s (%s examples) with Beam's %s.", source.dataset, counts, settings.runner)
    with shared_by_workers(scratch_folder, store) as shared:
        job = Job(examples, location, settings, str(folder), shared, block_examples or 0, num_examples)
        job = replace(job, block_examples=block_examples or writer_of(job).block_examples())
        writer = writer_of(job)
        writer.prepare()
        workers.expect(shared)
        job.write_positions()
        with _reporting_progress(job), running(settings) as pipeline:
            build(pipeline, job)
        writer.collect(scratch_folder)
        details = summarize(job, source)
        details["engine"] = {"runner": settings.runner, **workers.signed_in(shared)}
    if texts := details.get("texts"):
        counts = (f"{count:,}" for count in (texts["length"], texts["longer"], sum(num_examples.values())))
        _logger.info("[Records] text_length: up to %s bytes of a text. %s of %s texts are longer.", *counts)
    for headline, explanation in details["warnings"]:
        _logger.warning("%s. %s", headline, explanation)
    write_tfds_metadata(folder, job.source, job.spec, job.shards())
    write_croissant(folder, job.source, job.spec, job.shards(), location)
    return details


def build(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """Add the job's steps to a pipeline."""
    return (
        pipeline
        | "Plan blocks" >> beam.Create(job.blocks())  # (split, start, stop)
        | "Spread blocks" >> beam.Reshuffle()  # (split, start, stop), no longer fused to one worker's bundle
        | "Write blocks" >> beam.Map(write_block, job)  # (split, start, stop)
        | "Wait for all blocks" >> beam.GroupBy(lambda block: 0)  # (0, [(split, start, stop), …])
        | "Plan shards" >> beam.FlatMap(plan_shards, job)  # (split, number)
        | "Spread shards" >> beam.Reshuffle()  # (split, number)
        | "Write shards" >> beam.Map(write_shard, job)  # name of the shard
    )


def write_block(block: Block, job: Job) -> Block:
    """Read, serialize and write one block. Its statistics are written last and mark it as complete."""
    workers.sign_in(job.shared)
    stats = BlockStats(block, job)
    writer_of(job).write_block(block, read_block(block, job, stats))
    stats.write()
    return block


def read_block(block: Block, job: Job, stats: BlockStats) -> Iterator[Batch]:
    """Yield the batches of a block, and add each to the statistics."""
    source_split, start, stop = block
    positions, keys, layout = job.positions(block), job.keys(source_split)[start:stop], job.layout(source_split)
    start_row = 0
    for columns in read_batches(job.source, job.location, job.form, source_split, start, stop):
        rows = slice(start_row, start_row + len(columns[content_name(columns)]))
        if job.is_fixed:
            # Held-out examples keep their keys, so all keys have the same length.
            encoded = np.frombuffer("".join(keys[rows]).encode(), np.uint8).reshape(-1, layout.key_bytes)
            frames = layout.encode({**columns, KEY: encoded})
        else:
            labels = columns[LABEL]
            labels = labels.tolist() if labels.ndim == 1 else [label.tobytes() for label in labels]
            examples = zip(columns[IMAGE], labels, map(str.encode, keys[rows]), strict=True)
            frames = [frame(serialize({IMAGE: image, LABEL: label, KEY: key})) for image, label, key in examples]
        stats.add(columns, start_row, positions[rows])
        start_row = rows.stop
        yield frames, positions[rows]


def plan_shards(blocks: tuple[int, Iterable[Block]], job: Job) -> list[ShardId]:
    """The shards to write after all blocks. Raises EngineUnavailableError if the runner lost a block."""
    if missing := {*job.blocks()} - {*blocks[1]}:
        raise EngineUnavailableError(f"Beam finished the job without the blocks {sorted(missing)}. Run again.")
    return writer_of(job).shards()


def write_shard(shard: ShardId, job: Job) -> str:
    """Write one shard. Return its name."""
    workers.sign_in(job.shared)
    return writer_of(job).write_shard(shard)


@contextmanager
def _reporting_progress(job: Job) -> Iterator[None]:
    """Report the progress by the statistics of blocks, which every runner writes."""
    total, ended = sum(job.num_examples.values()), threading.Event()
    examples = {block_file(BLOCK_STATS, block): block[2] - block[1] for block in job.blocks()}

    def report() -> None:
        while not ended.wait(job.shared.poll_seconds):
            # If the store does not answer, the job continues.
            with suppress(RemoteError):
                done = sum(examples.get(name, 0) for name in job.shared.names(BLOCK_STATS))
                if done < total:
                    progress.report("Writing records", done, total)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
    progress.report("Writing records", total, total)
