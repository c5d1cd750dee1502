"""Augmentation in the input stream: an example becomes the same whatever the batch and wherever it is read from."""

import functools

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.problems.problem import open_split


def setup_module() -> None:
    global Augmentation, InputStream, MIXED_WIDTH, Split
    from pipeline.augmentation import MIXED_WIDTH, Augmentation
    from pipeline.streams.tf_data import InputStream, Split


SETTING = "flip, crop:4, color:0.2, cutout:8"


@pytest.fixture(scope="module")
def split(small_records):
    return open_split(small_records, read_manifest(small_records), "train")


@functools.cache
def augmentation_of(setting, image_shape):
    """An augmentation that traces each operation once for all streams."""
    return Augmentation(setting, seed=3, image_shape=image_shape)


def stream(split, setting="", *, size=32, in_memory=True):
    augmentation = augmentation_of(setting, split.content_shape) if setting else None
    return InputStream(split, global_batch_size=size, seed=3, in_memory=in_memory, augmentation=augmentation)


def epoch_of(split, setting, epoch, **how):
    found = list(stream(split, setting, **how).training(epoch).as_numpy_iterator())
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))


def changes(split, epoch, **how):
    """What each image of an epoch, by its own bytes, becomes."""
    before, labels = epoch_of(split, "", epoch, **how)
    after, same_labels = epoch_of(split, SETTING, epoch, **how)
    np.testing.assert_array_equal(labels, same_labels)
    return {one.tobytes(): other.tobytes() for one, other in zip(before, after, strict=True)}


def test_an_example_becomes_the_same_whatever_the_batch_and_wherever_it_is_read_from(split):
    first = changes(split, 2)
    assert len(first) == 403 // 32 * 32
    for how in ({"size": 13}, {"in_memory": False}):
        other = changes(split, 2, **how)
        shared = first.keys() & other.keys()
        assert len(shared) > 350
        assert all(first[image] == other[image] for image in shared)
    again = changes(split, 3)
    shared = first.keys() & again.keys()
    assert sum(first[image] == again[image] for image in shared) < 5


@pytest.mark.parametrize("in_memory", [True, False], ids=["in_memory", "from_disk"])
def test_mixup_mixes_images_and_labels_alike_whatever_the_batch(split, in_memory):
    before, labels = epoch_of(split, "", 1, in_memory=in_memory)
    mixed, mixed_labels = epoch_of(split, "mixup:1", 1, in_memory=in_memory)
    assert (mixed.dtype, mixed_labels.shape) == (np.uint8, (len(labels), MIXED_WIDTH))
    np.testing.assert_array_equal(mixed_labels[:, 0], labels)
    np.testing.assert_array_equal(mixed_labels[1:, 1], labels[:-1])
    assert mixed_labels[0].tolist() == [labels[0], labels[0], 1.0]
    share = mixed_labels[:, 2, None, None, None]
    expected = before * share + np.concatenate([before[:1], before[:-1]]) * (1 - share)
    assert np.abs(mixed - expected).max() <= 0.51
    other, other_labels = epoch_of(split, "mixup:1", 1, in_memory=in_memory, size=100)
    np.testing.assert_array_equal(other[:384], mixed)
    np.testing.assert_array_equal(other_labels[:384], mixed_labels)


@pytest.mark.parametrize("setting", [SETTING, "flip, mixup:0.2"])
@pytest.mark.parametrize("in_memory", [True, False], ids=["in_memory", "from_disk"])
def test_shapes_are_static_and_no_python_runs_for_a_batch(split, in_memory, setting):
    dataset = stream(split, setting, in_memory=in_memory).training(0)
    images, labels = dataset.element_spec
    assert images.shape.as_list()[1:] == [32, 32, 3]
    assert labels.shape.as_list()[1:] == ([3] if "mixup" in setting else [])
    waiting, types = [dataset], set()
    while waiting:
        current = waiting.pop()
        waiting += current._inputs()
        for function in current._functions():
            graph = function.function.graph.as_graph_def()
            nodes = [graph.node, *(inner.node_def for inner in graph.library.function)]
            types |= {node.op for part in nodes for node in part}
    assert "GatherV2" in types
    assert not types & {"While", "StatelessWhile", "MapDefun", "PyFunc", "EagerPyFunc"}


def test_evaluation_sees_the_examples_as_they_are(split):
    for plain, other in zip(stream(split).evaluation(), stream(split, "flip, mixup").evaluation(), strict=True):
        for one, same in zip(plain, other, strict=True):
            np.testing.assert_array_equal(one, same)
