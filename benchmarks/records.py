"""Records: from the prepared dataset to sharded TFRecords (row 6), and growth of memory (row 12)."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import apache_beam as beam

from benchmarks import scale
from benchmarks.baselines import record_writer, tfds_prepare
from benchmarks.comparison import Comparison, interleaved, ratios, seconds_of, speedup
from benchmarks.data import SPLITS, Bench, write_to
from pipeline.records.features import stored_form
from pipeline.settings.data import RecordsSettings
from pipeline.shards.engine import make_runner
from pipeline.sources import Location
from pipeline.sources.source import read_batches


def measure(bench: Bench) -> list[Comparison]:
    """Rows 6a, 6b, 6f and 12a."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        return [*_writing(bench, Path(scratch)), _growing(Path(scratch))]


def _writing(bench: Bench, scratch: Path) -> list[Comparison]:
    arrays = {split: record_writer.arrays(bench.split(split)) for split in SPLITS}
    archive = tfds_prepare.unpack(arrays, bench.source.label_names, scratch / "archive")
    values = interleaved(
        {
            "ours": lambda: _in_new_folder(scratch, lambda folder: write_to(bench, folder)),
            "tfds": lambda: _in_new_folder(scratch, lambda folder: tfds_prepare.prepare(archive, folder)),
            "loop": lambda: _in_new_folder(scratch, lambda folder: record_writer.write(arrays, folder)),
            "empty": lambda: seconds_of(_empty_job),
            "decode": lambda: seconds_of(lambda: _decode(bench)),
        },
        bench.rounds,
        warm_up=True,
    )
    job = [ours - empty for ours, empty in zip(values["ours"], values["empty"], strict=True)]
    row = {
        "what": f"Records of {bench.num_examples:,} CIFAR-10 images",
        "unit": "s",
        "ours": values["ours"],
        "limit": f"decoding the PNG files alone on both cores: {median(values['decode']):.2f} s",
    }
    return [
        speedup("6a", "`download_and_prepare` of TFDS", values["tfds"], 4.8, **row),
        speedup("6b", "decoding each image once", values["decode"], 0.85, **row),
        Comparison(
            number="6f",
            against="a loop of `tf.io.TFRecordWriter` over arrays",
            theirs=values["loop"],
            figure="times its time",
            figures=ratios(job, values["loop"]),
            goal=1.5,
            at_least=False,
            note=f"Without the fixed cost of a Beam job. An empty job takes {median(values['empty']):.2f} s",
            **row | {"ours": job},
        ),
    ]


def _growing(scratch: Path) -> Comparison:
    small, large = (scale.measure(times, scratch, ("records",))["records"] for times in (1, 10))
    return Comparison(
        number="12a",
        what="peak memory of Records of 600,000 placeholder images",
        against="Records of 60,000",
        unit="MB",
        ours=[large["peak_bytes"] / 1e6],
        theirs=[small["peak_bytes"] / 1e6],
        figure="times its memory",
        figures=[large["peak_bytes"] / small["peak_bytes"]],
        goal=1.3,
        at_least=False,
        limit="1",
        note=f"Once each, {small['seconds']:.1f} and {large['seconds']:.1f} s",
    )


def _empty_job() -> None:
    with beam.Pipeline(runner=make_runner(RecordsSettings())) as pipeline:
        (
            pipeline
            | "Create" >> beam.Create([1])
            | "Spread" >> beam.Reshuffle()
            | "Pass on" >> beam.Map(lambda element: element)
            | "Wait" >> beam.GroupBy(lambda element: 0)
            | "End" >> beam.Map(lambda element: element)
        )


def _decode(bench: Bench) -> None:
    location = Location(tfds_data_dir=bench.tfds_data_dir)
    form = stored_form(bench.source.features, RecordsSettings())
    for split in SPLITS:
        for _ in read_batches(bench.source, location, form, split, 0, bench.source.num_examples[split]):
            pass


def _in_new_folder(scratch: Path, action: Callable[[Path], object]) -> float:
    with _removed_afterwards(scratch / "new") as folder:
        return seconds_of(lambda: action(folder))


@contextmanager
def _removed_afterwards(folder: Path) -> Iterator[Path]:
    try:
        yield folder
    finally:
        for left in folder.parent.glob(f"{folder.name}*"):
            shutil.rmtree(left)
