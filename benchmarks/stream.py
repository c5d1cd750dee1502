"""Input stream of raw pixels: first pass, later passes, and an emulated accelerator kept busy (row 11)."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import numpy as np
import tensorflow as tf

from benchmarks.baselines import keras_arrays, tfds_stream
from benchmarks.baselines.record_writer import arrays
from benchmarks.baselines.torch_process import TorchProcess
from benchmarks.comparison import Comparison, interleaved, speedup
from benchmarks.data import Bench
from pipeline.streams.tf_data import InputStream

GLOBAL_BATCH_SIZE = 128
# Accelerators are fed larger batches: 256 for each of eight cores. Calling for a batch from Python costs 0.1 to 0.2 ms.
ACCELERATOR_BATCH_SIZE = 2_048
THRESHOLDS = ((150_000, 0.97), (400_000, 0.90))
_PASSES = 4


def measure(bench: Bench) -> list[Comparison]:
    """Row 11."""
    return [*_first_pass(bench), *_later_passes(bench), *_accelerator(bench)]


def _first_pass(bench: Bench) -> list[Comparison]:
    def ours() -> float:
        return rate(lambda: _stream(bench, GLOBAL_BATCH_SIZE).training(0))

    values = interleaved(
        {
            "ours": ours,
            "png": lambda: rate(lambda: tfds_stream.prepared_dataset(bench.tfds_data_dir, GLOBAL_BATCH_SIZE)),
            "records": lambda: rate(lambda: tfds_stream.records_dataset(bench.records_folder, GLOBAL_BATCH_SIZE)),
            "read": lambda: _reading_rate(bench),
        },
        bench.rounds,
    )
    limit = f"reading the bytes of the files: {median(values['read']):,.0f} images/s"
    return [
        speedup(
            *(number, against, values[baseline], goal),
            what="input stream of CIFAR-10, first pass from the files",
            unit="images/s",
            ours=values["ours"],
            limit=limit,
            note="All files are in the page cache",
        )
        for number, baseline, against, goal in (
            ("11a", "png", "`as_dataset` of TFDS on its own copy, which decodes PNG", 15),
            ("11b", "records", "`as_dataset` of TFDS on these records", 5),
        )
    ]


def _later_passes(bench: Bench) -> list[Comparison]:
    images, labels = arrays(bench.split("train"))
    stream = _stream(bench, GLOBAL_BATCH_SIZE)
    keras_dataset = keras_arrays.dataset(images, labels, GLOBAL_BATCH_SIZE)
    epoch = iter(range(1, 1_000))
    with TorchProcess(images, labels, bench.folder) as torch:
        workers = torch.best_number_of_workers(GLOBAL_BATCH_SIZE)
        values = interleaved(
            {
                "ours": lambda: rate(lambda: stream.training(next(epoch))),
                "keras": lambda: rate(lambda: keras_dataset),
                "torch": lambda: torch.loader_rate(GLOBAL_BATCH_SIZE, workers),
                "gather": lambda: _gathering_rate(images, next(epoch)),
            },
            bench.rounds,
            warm_up=True,
        )
    limit = f"gathering the same rows with NumPy in one thread: {median(values['gather']):,.0f} images/s"
    row = {
        "what": "input stream of CIFAR-10, later passes from memory",
        "unit": "images/s",
        "ours": values["ours"],
        "limit": limit,
    }
    return [
        speedup("11c", "the adapter of Keras for NumPy arrays", values["keras"], 1, **row),
        speedup(
            *("11d", "`DataLoader` of PyTorch over tensors in memory", values["torch"], 10),
            note=f"{workers} workers, the fastest of 0, 1, 2 and 4",
            **row,
        ),
    ]


def _accelerator(bench: Bench) -> list[Comparison]:
    stream = _stream(bench, ACCELERATOR_BATCH_SIZE)
    empty = tf.data.Dataset.range(stream.steps_per_epoch)
    values = interleaved(
        {
            (demand, what): lambda demand=demand, dataset_of=dataset_of: _busy_share(dataset_of, demand)
            for demand, _ in THRESHOLDS
            for what, dataset_of in (("ours", stream.training), ("limit", lambda epoch: empty))
        },
        bench.rounds,
        warm_up=True,
    )
    return [
        Comparison(
            number=f"11{letter}",
            what=f"an emulated accelerator of {demand:,} images/s",
            against="always busy",
            unit="share of its time",
            ours=values[demand, "ours"],
            figure="of the time",
            figures=values[demand, "ours"],
            goal=goal,
            at_least=True,
            limit=f"a dataset of numbers alone: {median(values[demand, 'limit']):.3f}",
            note=f"Steps of {ACCELERATOR_BATCH_SIZE:,} images, {_PASSES} passes with the start of each",
        )
        for letter, (demand, goal) in zip("ef", THRESHOLDS, strict=True)
    ]


def _stream(bench: Bench, global_batch_size: int) -> InputStream:
    return InputStream(bench.split("train"), global_batch_size=global_batch_size, seed=0, in_memory=True)


def rate(make: Callable[[], Iterable]) -> float:
    """Images per second of one pass, including the time to make the dataset."""
    started = time.perf_counter()
    images = sum(len(labels) for _, labels in make())
    return images / (time.perf_counter() - started)


def _busy_share(dataset_of: Callable[[int], Iterable], demand: float) -> float:
    step_seconds = ACCELERATOR_BATCH_SIZE / demand
    datasets = [dataset_of(epoch) for epoch in range(_PASSES)]
    busy = 0.0
    started = time.perf_counter()
    for dataset in datasets:
        for _ in dataset:
            began = time.perf_counter()
            time.sleep(step_seconds)
            busy += time.perf_counter() - began
    return busy / (time.perf_counter() - started)


def _reading_rate(bench: Bench) -> float:
    files = bench.split("train").files
    started = time.perf_counter()
    contents = [Path(file).read_bytes() for file in files]
    return bench.source.num_examples["train"] / (time.perf_counter() - started) if contents else 0.0


def _gathering_rate(images: np.ndarray, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(len(images))
    started = time.perf_counter()
    for first in range(0, len(order), GLOBAL_BATCH_SIZE):
        images[order[first : first + GLOBAL_BATCH_SIZE]]
    return len(order) / (time.perf_counter() - started)
