"""What the stream and the Beam job cost, in counts, which hold on any machine: work per example must not creep in."""

import gc
import sys
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.problems.problem import open_split
from pipeline.records.features import image_spec
from pipeline.settings.data import RecordsSettings
from pipeline.sources import Location, SourceInfo, placeholder_images


def setup_module() -> None:
    global BLOCK_EXAMPLES, FixedLayout, InputStream, Job, Split, decode_rows, tf
    import tensorflow as tf

    from pipeline.records.example import FixedLayout, decode_rows
    from pipeline.shards.plan import Job
    from pipeline.shards.writers import BLOCK_EXAMPLES
    from pipeline.streams.tf_data import InputStream, Split


@pytest.fixture(scope="module")
def split(small_records):
    return open_split(small_records, read_manifest(small_records), "train")


def python_calls(action) -> int:
    """Calls of Python functions, in every thread that begins meanwhile too."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    # What earlier tests have left may be collected at any moment, and finalizers are calls.
    gc.collect()
    gc.disable()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return calls


@pytest.mark.parametrize("in_memory", [True, False], ids=["in_memory", "from_disk"])
def test_the_stream_calls_no_python_for_an_image(split, in_memory):
    # As many batches of twice the images: what is called for a batch cancels out.
    first = split.shard_examples[:1]
    half = replace(split, files=split.files[:1], num_examples=sum(first), shard_examples=first)
    streams = {
        size: InputStream(part, global_batch_size=size, seed=0, in_memory=in_memory)
        for part, size in ((half, 16), (split, 48))
    }
    assert streams[16].steps_per_epoch == streams[48].steps_per_epoch == 8

    def one_pass(stream: "InputStream") -> int:
        dataset = stream.training(0)
        return python_calls(lambda: [None for _ in dataset])

    for stream in streams.values():
        one_pass(stream)
    assert one_pass(streams[48]) == one_pass(streams[16])


@pytest.mark.parametrize("in_memory", [True, False], ids=["in_memory", "from_disk"])
def test_the_stream_has_no_python_in_its_graph(split, in_memory):
    stream = InputStream(split, global_batch_size=32, seed=0, in_memory=in_memory)
    for dataset in (stream.training(0), stream.evaluation()):
        operations = {node for function in functions_of(dataset) for node in operation_types(function)}
        assert operations & {"GatherV2", "StridedSlice", "DecodePaddedRaw"}
        assert not {name for name in operations if "PyFunc" in name}


def functions_of(dataset: "tf.data.Dataset") -> list:
    found, waiting = [], [dataset]
    while waiting:
        current = waiting.pop()
        waiting += current._inputs()
        found += [function.function for function in current._functions()]
    return found


def operation_types(function) -> set[str]:
    return {operation.type for operation in function.graph.get_operations()}


def test_one_call_takes_a_whole_batch_of_records_apart(split):
    rows = split.layout
    sizes = []
    for size in (1, 32, 1_000):
        frames = tf.TensorSpec([size, rows.frame_bytes], tf.uint8)
        operations = tf.function(partial(decode_rows, rows)).get_concrete_function(frames).graph.get_operations()
        assert not {operation.type for operation in operations} & {
            "While",
            "StatelessWhile",
            "MapDefun",
            "ParseExampleV2",
        }
        sizes.append(len(operations))
    assert len(set(sizes)) == 1


def test_the_beam_job_has_less_than_one_element_for_a_thousand_images():
    source = SourceInfo(
        dataset="cifar10", origin="tfds", version="3.0.2", features=image_spec((32, 32, 3), "png"),
        label_names=placeholder_images.LABEL_NAMES,
        num_examples={"train": 50_000, "test": 10_000},
    )  # fmt: skip
    job = Job(source, Location(), RecordsSettings(), "folder", "notes", BLOCK_EXAMPLES, source.num_examples)
    assert len(job.blocks()) / (60_000 / 1_000) <= 0.05


def test_a_batch_of_records_is_framed_without_python_for_each():
    layout = FixedLayout(image_spec((32, 32, 3)), 10, len("train-000000000"))

    def frame(size: int) -> int:
        images, labels = np.zeros((size, 32, 32, 3), np.uint8), np.zeros(size, np.int64)
        keys = np.zeros((size, len("train-000000000")), np.uint8)
        return python_calls(lambda: layout.encode({"image": images, "label": labels, "key": keys}))

    frame(1)
    assert frame(500) == frame(50)
