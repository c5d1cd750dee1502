"""Records of any length: photographs of varying size, stored as they come, in the same bytes whoever writes them."""

import functools
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tfrecord import parse_example, read_records, shard_bytes

from pipeline import sources
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.problems.problem import open_split
from pipeline.records.features import Feature, stored_form
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.shared import SharedFolder
from pipeline.shards.splits import splits_by_label
from pipeline.sources import Location
from pipeline.sources.files import path_key


def setup_module() -> None:
    global InputStream, Split, fit, tf, tfds, verify_artifact, write_records, writers
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from pipeline.records.images import fit
    from pipeline.runs.verify import verify_artifact
    from pipeline.shards import writers
    from pipeline.shards.job import write_records
    from pipeline.streams.tf_data import InputStream, Split


# Larger than the images that are stored raw by default.
SIZE, PHOTOGRAPHS = 72, 50


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """JPEGs of two labels, no two of the same size or content."""
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for number in range(PHOTOGRAPHS):
        label = ("night", "day")[number % 2]
        pixels = rng.integers(0, 256, (80 + number, 130 - number, 3), np.uint8) // 8 + (number % 2) * 200
        (folder / label).mkdir(exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / label / f"{number}.jpg", quality=70)
    return folder


@pytest.fixture(scope="module")
def write(photographs, tmp_path_factory):
    """A function that writes the photographs' records, once for each choice, and returns the published folder."""
    from pipeline.artifacts.manifest import write_manifest

    listing = tmp_path_factory.mktemp("source")
    source = sources.resolve(SourceSettings(dataset="folder", path=str(photographs)), listing)
    location = Location(folder=str(photographs), listing=str(listing / "examples.json"))

    @functools.cache
    def written(*, block_examples: int = 20, **settings) -> Path:
        folder = tmp_path_factory.mktemp("records") / "records"
        folder.mkdir()
        defaults = {"train_shards": 3, "test_shards": 2, "image_size": SIZE, "store_side": "original"}
        options = RecordsSettings(**defaults | settings)
        notes = tmp_path_factory.mktemp("notes")
        details = write_records(source, options, folder, notes, location=location, block_examples=block_examples)
        write_manifest(folder, stage="Records", identity={"test": True}, details=details)
        return folder

    return written


@pytest.fixture(scope="module")
def records(write) -> Path:
    return write()


def examples_of(folder: Path, split: str) -> list[dict]:
    paths = sorted(folder.glob(f"*-{split}.tfrecord-*"))
    return [parse_example(record) for path in paths for record in read_records(path)]


def test_every_record_holds_the_files_own_bytes(records, photographs):
    files = {path_key(path.relative_to(photographs).as_posix()): path for path in photographs.rglob("*.jpg")}
    seen, keys = set(), [*files]
    labels = [files[key].parent.name for key in keys]
    splits = dict(zip(keys, splits_by_label(keys, labels, test_share=0.2, validation_share=0), strict=True))
    for split in ("train", "test"):
        for example in examples_of(records, split):
            path = files[example["key"].decode()]
            assert example["image"] == path.read_bytes()
            assert ("day", "night")[example["label"]] == path.parent.name
            assert splits[example["key"].decode()] == split
            seen.add(path)
    assert seen == set(files.values())


@pytest.mark.parametrize(
    ("block_examples", "options"),
    [(1, ""), (1_000, ""), (7, "--direct_running_mode=multi_threading --direct_num_workers=3")],
)
def test_blocks_and_threads_change_no_byte(block_examples, options, records, write):
    assert shard_bytes(write(block_examples=block_examples, runner_options=options)) == shard_bytes(records)


def test_train_gives_its_share_to_test_and_to_validation(write, photographs):
    folder = write(validation_share=0.3)
    splits = read_manifest(folder)["splits"]
    assert list(splits) == ["train", "validation", "test"]
    keys = {split: {example["key"] for example in examples_of(folder, split)} for split in splits}
    assert sum(map(len, keys.values())) == len(set().union(*keys.values())) == PHOTOGRAPHS
    assert {split: entry["num_examples"] for split, entry in splits.items()} == {s: len(k) for s, k in keys.items()}


def test_tfds_and_verification_read_what_was_written(records):
    builder = tfds.builder_from_directory(records)
    images = list(builder.as_dataset(split="test").as_numpy_iterator())
    assert len(images) == read_manifest(records)["splits"]["test"]["num_examples"]
    assert {example["image"].shape[2] for example in images} == {3}
    verify_artifact(records)


def test_a_flipped_bit_is_found(records, tmp_path):
    folder = shutil.copytree(records, tmp_path / "records")
    path = next(iter(sorted(folder.glob("*-test.tfrecord-*"))))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedArtifactError, match=path.name):
        verify_artifact(folder)


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_stream_gives_every_example_decoded_cropped_and_resized(in_memory, records, photographs):
    split = open_split(records, read_manifest(records), "train")
    stream = InputStream(split, global_batch_size=16, seed=0, in_memory=in_memory)
    images, labels = map(np.concatenate, zip(*stream.evaluation().as_numpy_iterator(), strict=True))
    assert images.shape == (split.num_examples, SIZE, SIZE, 3)
    assert images.dtype == np.uint8
    for image, label, example in zip(images, labels, examples_of(records, "train"), strict=True):
        assert label == example["label"]
        whole = np.asarray(Image.open(io.BytesIO(example["image"])))
        side = min(whole.shape[:2])
        top, left = (whole.shape[0] - side) // 2, (whole.shape[1] - side) // 2
        middle = whole[top : top + side, left : left + side].astype(np.float32)
        expected = tf.image.resize(middle, (SIZE, SIZE), antialias=True).numpy()
        # Decoders differ by a few levels, on noise more than on pictures.
        assert np.abs(expected - image).mean() < 3


def test_an_epoch_from_disk_is_the_same_again_and_another_is_not(records):
    split = open_split(records, read_manifest(records), "train")

    def epoch(number: int) -> bytes:
        stream = InputStream(split, global_batch_size=16, seed=0, in_memory=False)
        return b"".join(
            labels.tobytes() + images.tobytes() for images, labels in stream.training(number).as_numpy_iterator()
        )

    assert epoch(0) == epoch(0) != epoch(1)


def test_raw_records_of_photographs_are_all_of_one_size(write):
    folder = write(encoding="raw", image_size=SIZE // 2)
    shape = [SIZE // 2, SIZE // 2, 3]
    assert read_manifest(folder)["feature_spec"]["image"] == {"shape": shape, "dtype": "uint8", "encoding": "raw"}
    assert {len(example["image"]) for example in examples_of(folder, "test")} == {np.prod(shape)}


@pytest.mark.parametrize(
    ("resize", "expected"),
    [("crop", [255, 255, 255]), ("pad", [0, 0, 0]), ("stretch", [100, 255, 100])],
)
def test_crop_keeps_the_middle_pad_adds_black_and_stretch_keeps_all(resize, expected):
    image = np.full((30, 10, 3), 255, np.uint8)
    image[:8], image[-8:] = 100, 100
    form = stored_form(
        {"image": Feature((None, None, 3), "uint8", "jpeg")}, RecordsSettings(image_size=30, resize=resize)
    )
    assert fit(tf.constant(image), form).numpy()[[1, 15, 28], 1, 0].tolist() == expected


@pytest.mark.parametrize("size", [SIZE // 2, SIZE // 8])
def test_raw_and_jpeg_records_give_a_stream_the_same_pixels_but_for_rounding(size, write):
    found = []
    for folder in (write(encoding="jpeg", image_size=size), write(encoding="raw", image_size=size)):
        split = open_split(folder, read_manifest(folder), "test")
        stream = InputStream(split, global_batch_size=8, seed=0)
        found.append(np.concatenate([images for images, _ in stream.evaluation().as_numpy_iterator()]))
    assert np.abs(found[0].astype(int) - found[1]).mean() < 1


def test_images_of_varying_size_need_one(write):
    with pytest.raises(SettingsError, match=r"\[Records\] image_size: expected auto or pixels per side.*vary in size"):
        write(image_size=0)


@pytest.mark.parametrize(
    ("shape", "encoding", "requested", "expected"),
    [
        ((32, 32, 3), "png", {}, ("raw", (32, 32, 3))),
        ((28, 28, 1), "raw", {}, ("raw", (28, 28, 1))),
        ((224, 224, 3), "jpeg", {"image_size": 0}, ("jpeg", (224, 224, 3))),
        ((None, None, 3), "jpeg", {"image_size": 64}, ("raw", (64, 64, 3))),
        ((None, None, 3), "jpeg", {"image_size": 65}, ("jpeg", (65, 65, 3))),
        ((None, None, 3), "image", {"image_size": 192}, ("image", (192, 192, 3))),
        ((None, None, 3), "image", {"image_size": 192, "encoding": "jpeg"}, ("jpeg", (192, 192, 3))),
        ((None, None, 3), "jpeg", {"image_size": 192, "encoding": "raw"}, ("raw", (192, 192, 3))),
    ],
)
def test_the_form_of_images_is_raw_where_they_are_small(shape, encoding, requested, expected):
    image = Feature(shape, "uint8", encoding)
    form = stored_form({"image": image}, RecordsSettings(**requested))
    assert (form.encoding, form.shape(image)) == expected


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({"image_size": 160}, 184),
        ({"image_size": 160, "store_side": "original"}, 0),
        ({"image_size": 160, "store_side": "160"}, 160),
        ({"image_size": 160, "encoding": "raw"}, 0),
        ({"image_size": 64, "encoding": "jpeg"}, 0),
        ({"image_size": 64, "encoding": "jpeg", "store_side": "256"}, 256),
    ],
)
def test_larger_photographs_are_stored_somewhat_larger_than_the_model_needs(requested, expected):
    form = stored_form({"image": Feature((None, None, 3), "uint8", "jpeg")}, RecordsSettings(**requested))
    assert form.store_side == expected


@pytest.mark.parametrize("requested", [{"image_size": 160}, {"image_size": 200}, {"image_size": 96, "encoding": "raw"}])
def test_a_store_side_without_effect_is_refused(requested):
    image = Feature((200, 200, 4 if requested["image_size"] == 160 else 3), "uint8", "png")
    with pytest.raises(SettingsError, match=r"\[Records\] store_side: expected auto, original, or .*, got '199'"):
        stored_form({"image": image}, RecordsSettings(store_side="199", **requested))


@pytest.mark.parametrize("side", ["31", "4097", "0184", "-1", "half"])
def test_a_store_side_that_is_none_is_refused(side):
    with pytest.raises(SettingsError, match=r"\[Records\] store_side: expected auto, original, or a number of pixels"):
        RecordsSettings(store_side=side)


def test_reduced_photographs_look_like_the_originals_to_a_model(write, photographs):
    found = []
    for side in ("original", "66"):
        folder = write(store_side=side, image_size=66)
        split = open_split(folder, read_manifest(folder), "test")
        found.append([images for images, _ in InputStream(split, global_batch_size=64, seed=0).evaluation()])
    ((original,), (reduced,)) = found
    # The photographs are noise, so compare the means of their quarters.
    quarters = [tf.image.resize(tf.cast(images, tf.float32), (2, 2), method="area") for images in (original, reduced)]
    assert np.abs(quarters[0] - quarters[1]).max() < 3
    assert not np.array_equal(original, reduced)


def test_images_that_are_not_encoded_are_stored_raw_alone():
    with pytest.raises(SettingsError, match=r"\[Records\] encoding.*raw or auto"):
        stored_form({"image": Feature((32, 32, 3), "uint8", "raw")}, RecordsSettings(encoding="jpeg"))


@settings(max_examples=40)
@given(
    blocks=st.lists(st.lists(st.binary(max_size=40), max_size=8), min_size=1, max_size=6),
    num_shards=st.integers(1, 4),
    chunk_bytes=st.sampled_from([1, 50, 1_000]),
    seed=st.integers(0, 1_000),
)
def test_a_merge_writes_every_record_once_at_its_position(tmp_path_factory, blocks, num_shards, chunk_bytes, seed):
    shared = SharedFolder(str(tmp_path_factory.mktemp("merge")))
    frames = [frame for block in blocks for frame in block]
    order = np.random.default_rng(seed).permutation(len(frames))
    shard = np.arange(len(frames)) % num_shards
    places = np.empty((len(frames), 2), np.int64)
    places[order] = np.stack([shard, np.arange(len(frames)) // num_shards], axis=1)
    first, runs = 0, [f"runs/{number}" for number in range(len(blocks))]
    for run, block in zip(runs, blocks, strict=True):
        shared.write(run, writers.encode_run(block, places[first : first + len(block)], num_shards))
        first += len(block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "_CHUNK_BYTES", chunk_bytes)
        for number in range(num_shards):
            members = [frames[index] for index in order[shard == number]]
            assert b"".join(writers.merge_runs(shared, runs, number, len(members), "shard")) == b"".join(members)


def test_a_merge_without_all_its_records_is_refused(tmp_path):
    shared = SharedFolder(str(tmp_path))
    shared.write("a", writers.encode_run([b"x", b"y"], np.array([[0, 0], [0, 2]]), 1))
    with pytest.raises(ValueError, match="shard: expected 3 different records, got 2"):
        list(writers.merge_runs(shared, ["a"], 0, 3, "shard"))


def test_a_run_that_was_cut_off_is_refused(tmp_path):
    shared = SharedFolder(str(tmp_path))
    shared.write("a", writers.encode_run([b"x", b"yz"], np.array([[0, 0], [0, 1]]), 1)[:-1])
    with pytest.raises(ValueError, match="a: expected 3 bytes, got 2"):
        list(writers.merge_runs(shared, ["a"], 0, 2, "shard"))
