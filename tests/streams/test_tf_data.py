import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import open_split
from pipeline.sources import placeholder_images


def setup_module() -> None:
    global Augmentation, InputStream, Split
    from pipeline.augmentation import Augmentation
    from pipeline.streams.tf_data import InputStream, Split


@pytest.fixture(scope="module")
def split(small_records):
    return open_split(small_records, read_manifest(small_records), "train")


@pytest.fixture(scope="module", params=[True, False], ids=["in_memory", "from_disk"])
def stream(request, split):
    return InputStream(split, global_batch_size=32, seed=7, in_memory=request.param)


@pytest.fixture(scope="module")
def first_epoch(stream):
    return batches(stream.training(0))


@pytest.fixture(scope="module")
def evaluated(stream):
    return batches(stream.evaluation())


def batches(dataset):
    return [(images, labels) for images, labels in dataset.as_numpy_iterator()]


def as_set(found):
    return sorted(bytes([label]) + image.tobytes() for batch in found for image, label in zip(*batch, strict=True))


def drawn():
    """The images of the placeholder's train split, as ``as_set`` gives them."""
    return as_set([placeholder_images.draw_block("train", 0, 403)])


def test_training_yields_whole_uint8_batches(stream, first_epoch):
    assert len(first_epoch) == stream.steps_per_epoch == 403 // 32
    assert {images.shape for images, _ in first_epoch} == {(32, 32, 32, 3)}
    assert {images.dtype for images, _ in first_epoch} == {np.dtype(np.uint8)}
    assert {labels.dtype for _, labels in first_epoch} == {np.dtype(np.int32)}


def test_no_example_comes_twice_in_an_epoch(first_epoch):
    seen = as_set(first_epoch)
    assert len(set(seen)) == len(seen) == 403 // 32 * 32


def test_same_seed_and_epoch_give_the_same_batches(stream, split):
    again = InputStream(split, global_batch_size=32, seed=7, in_memory=stream.in_memory)
    for (left, _), (right, _) in zip(batches(stream.training(3)), batches(again.training(3)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_each_epoch_and_each_seed_has_its_own_order(stream, split, first_epoch):
    other = InputStream(split, global_batch_size=32, seed=8, in_memory=stream.in_memory)
    first = first_epoch[0][0]
    assert not np.array_equal(first, batches(stream.training(1).take(1))[0][0])
    assert not np.array_equal(first, batches(other.training(0).take(1))[0][0])


# Mixup is made before a batch is taken apart, all else after it.
@pytest.mark.parametrize(("parts", "augment"), [(4, ""), (2, "flip"), (2, "mixup:0.4")])
def test_the_parts_of_several_processes_are_the_batches_of_one(stream, split, parts, augment):
    augmentation = Augmentation(augment, seed=7, image_shape=split.content_shape) if augment else None
    how = {"global_batch_size": 32, "seed": 7, "in_memory": stream.in_memory, "augmentation": augmentation}
    whole = batches(InputStream(split, **how).training(2))
    of_parts = [
        batches(InputStream(split, **how, process_share=(number, parts)).training(2)) for number in range(parts)
    ]
    assert {images.shape[0] for part in of_parts for images, _ in part} == {32 // parts}
    for (images, labels), *found in zip(whole, *of_parts, strict=True):
        np.testing.assert_array_equal(np.concatenate([part for part, _ in found]), images)
        np.testing.assert_array_equal(np.concatenate([part for _, part in found]), labels)


def test_every_process_evaluates_the_whole_split_in_stored_order(stream, split, evaluated):
    part = InputStream(split, global_batch_size=32, seed=7, in_memory=stream.in_memory, process_share=(1, 4))
    assert as_set(evaluated) == drawn()
    assert [len(labels) for _, labels in evaluated] == [32] * 12 + [19]
    for again in (stream, part):
        for (images, labels), (expected, expected_labels) in zip(batches(again.evaluation()), evaluated, strict=True):
            np.testing.assert_array_equal(images, expected)
            np.testing.assert_array_equal(labels, expected_labels)


def test_the_validation_split_streams_as_any_other(write_small_records):
    folder = write_small_records(validation_share=0.2)
    splits = [open_split(folder, read_manifest(folder), name) for name in ("train", "validation")]
    for in_memory in (True, False):
        streams = [InputStream(part, global_batch_size=32, seed=0, in_memory=in_memory) for part in splits]
        assert as_set(batch for stream in streams for batch in batches(stream.evaluation())) == drawn()


@pytest.mark.parametrize(
    ("image_shape", "global_batch_size", "batches"),
    [((32, 32, 3), 128, 32), ((32, 32, 3), 2_048, 32), ((32, 32, 3), 50_000, 2), ((224, 224, 3), 1_024, 2)],
)
def test_prefetching_is_bounded_by_bytes(split, image_shape, global_batch_size, batches):
    large = dataclasses.replace(split, content_shape=image_shape, num_examples=100_000)
    stream = InputStream(large, global_batch_size=global_batch_size, seed=0, in_memory=False)
    assert stream.batches_ahead == batches
    prefetched = stream.training(0)
    while not hasattr(prefetched, "_buffer_size"):
        (prefetched,) = prefetched._inputs()
    assert int(prefetched._buffer_size) == batches


def test_memory_is_used_only_where_the_split_fits(split, monkeypatch):
    assert InputStream(split, global_batch_size=32, seed=0).in_memory
    monkeypatch.setattr("pipeline.streams.tf_data.MEMORY_SHARE", 0.0)
    assert not InputStream(split, global_batch_size=32, seed=0).in_memory


def test_memory_and_disk_give_the_same_examples(split):
    memory, disk = (InputStream(split, global_batch_size=32, seed=7, in_memory=kept) for kept in (True, False))
    for (left, left_labels), (right, right_labels) in zip(
        batches(memory.evaluation()), batches(disk.evaluation()), strict=True
    ):
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(left_labels, right_labels)


def test_records_that_are_not_as_the_manifest_says_are_refused(split, tmp_path):
    short = tmp_path / "short"
    short.write_bytes(Path(split.files[0]).read_bytes()[:-1])
    cut = dataclasses.replace(split, files=(str(short), *split.files[1:]))
    with pytest.raises(
        DamagedArtifactError, match=r'short: manifest lists \d+ records of 3154 bytes.*"tensorcraft run"'
    ):
        InputStream(cut, global_batch_size=32, seed=7, in_memory=True)
    for change in (1, -1):
        other = dataclasses.replace(split, num_examples=split.num_examples + change)
        with pytest.raises(DamagedArtifactError, match=rf"lists {other.num_examples} train records, found \d+\."):
            InputStream(other, global_batch_size=32, seed=7, in_memory=True)
