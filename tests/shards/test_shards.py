import dataclasses
import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfrecord import crc32c, parse_example, read_records, shard_bytes

from pipeline import sources
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.records import CONTENT_DIGESTS
from pipeline.records.features import image_spec
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.shared import SharedFolder
from pipeline.sources import Location, SourceInfo, placeholder_images


def setup_module() -> None:
    global engine, plan, splits, tfds, verify_artifact
    import tensorflow_datasets as tfds

    from pipeline.runs.verify import verify_artifact
    from pipeline.shards import engine, plan, splits


def test_every_record_is_the_sources_example(small_records, small_source):
    for split in ("train", "test"):
        images, labels = placeholder_images.draw_block(split, 0, small_source.num_examples[split])
        seen = set()
        for path in sorted(small_records.glob(f"*-{split}.tfrecord-*")):
            for record in read_records(path):
                example = parse_example(record)
                index = int(example["key"].decode().rpartition("-")[2])
                assert example["key"].decode() == f"{split}-{index:09d}"
                assert example["image"] == images[index].tobytes()
                assert example["label"] == labels[index]
                seen.add(index)
        assert seen == set(range(small_source.num_examples[split]))


def test_the_independent_parser_knows_the_published_check_value():
    # "123456789" is the check input of every CRC catalog; CRC-32C's answer to it is E3069283.
    assert crc32c(b"123456789") == 0xE3069283


def test_manifest_describes_shards_and_splits(small_records, small_source):
    manifest = read_manifest(small_records)
    for split, num_shards in {"train": 3, "test": 2}.items():
        entries = [entry for entry in manifest["files"] if entry.get("split") == split]
        sizes = [entry["num_records"] for entry in entries]
        assert len(entries) == num_shards
        assert sum(sizes) == manifest["splits"][split]["num_examples"] == small_source.num_examples[split]
        assert max(sizes) - min(sizes) <= 1
        _, labels = placeholder_images.draw_block(split, 0, small_source.num_examples[split])
        counts = np.bincount(labels, minlength=10).tolist()
        assert manifest["splits"][split]["label_counts"] == dict(
            zip(placeholder_images.LABEL_NAMES, counts, strict=True)
        )
    assert manifest["label_names"] == list(placeholder_images.LABEL_NAMES)
    assert manifest["feature_spec"]["image"] == {"shape": [32, 32, 3], "dtype": "uint8", "encoding": "raw"}
    assert manifest["dataset_verified"] is False


def test_content_digest_is_the_field_definition(small_records, small_source):
    manifest = read_manifest(small_records)
    for split in ("train", "test"):
        images, labels = placeholder_images.draw_block(split, 0, small_source.num_examples[split])
        each = sorted(
            hashlib.sha256(bytes([label]) + image.tobytes()).digest()
            for image, label in zip(images, labels, strict=True)
        )
        assert manifest["splits"][split]["content_digest"] == hashlib.sha256(b"".join(each)).hexdigest()


def test_tfds_reads_the_folder(small_records, small_source):
    builder = tfds.builder_from_directory(small_records)
    assert builder.info.features["label"].names == list(placeholder_images.LABEL_NAMES)
    for split in ("train", "test"):
        images, labels = placeholder_images.draw_block(split, 0, small_source.num_examples[split])
        assert builder.info.splits[split].num_examples == small_source.num_examples[split]
        examples = list(builder.as_dataset(split=split).as_numpy_iterator())
        assert len(examples) == small_source.num_examples[split]
        for example in examples:
            index = int(example["key"].decode().rpartition("-")[2])
            np.testing.assert_array_equal(example["image"], images[index])
            assert example["label"] == labels[index]
    image, label = next(iter(builder.as_dataset(split="test", as_supervised=True).as_numpy_iterator()))
    assert image.shape == (32, 32, 3)
    assert 0 <= label < 10


@pytest.mark.slow
def test_more_shards_than_a_process_may_open_are_written(tmp_path):
    code = """
import resource, sys
from pathlib import Path
from pipeline.shards.job import write_records
from pipeline.settings.data import RecordsSettings
from pipeline.records.features import image_spec
from pipeline.sources import SourceInfo, placeholder_images
# Beam, TensorFlow and what they import have their own files open by now.
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
source = SourceInfo(
    dataset="synthetic", origin="synthetic", version="1", features=image_spec(placeholder_images.IMAGE_SHAPE),
    label_names=placeholder_images.LABEL_NAMES, num_examples={"train": 500, "test": 50},
)
folder, notes = map(Path, sys.argv[1:])
write_records(source, RecordsSettings(train_shards=300, validation_share=0.1), folder, notes)
"""
    folder, notes = tmp_path / "records", tmp_path / "notes"
    folder.mkdir()
    notes.mkdir()
    done = subprocess.run([sys.executable, "-c", code, folder, notes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("*-train.tfrecord-*"))) == 300
    keys = keys_of(folder, "train") | keys_of(folder, "validation")
    assert keys == {f"train-{index:09d}" for index in range(500)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--direct_num_worker=2", r"got '--direct_num_worker'\. Did you mean 'direct_num_workers'\?"),
        ("--direct_num_workers=2 --zyx", r"got '--zyx'\."),
    ],
)
def test_a_flag_that_beam_does_not_know_is_refused_with_the_nearest_it_knows(options, said, write_small_records):
    with pytest.raises(SettingsError, match=rf"\[Records\] runner_options.*{said}"):
        write_small_records(runner_options=options)


def test_flags_of_a_job_server_are_left_to_it():
    settings = RecordsSettings(runner="FlinkRunner", runner_options="--known_to_the_job_server=1")
    assert engine.make_options(settings, engine.make_runner(settings))


def test_tfds_source_and_its_records_agree(tiny_tfds, write_small_records, small_source, tmp_path):
    info = sources.resolve(SourceSettings(dataset="cifar10", origin="tfds", tfds_data_dir=str(tiny_tfds)), tmp_path)
    assert info.num_examples == {"train": 403, "test": 101}
    manifest = read_manifest(write_small_records(source=info, data_dir=str(tiny_tfds)))
    # The same pixels as the stand-in's, but not CIFAR-10's: verification comes out false, as it should.
    assert manifest["splits"]["train"]["num_examples"] == 403
    assert manifest["dataset_verified"] is False


@pytest.mark.slow
def test_real_cifar10_is_verified_though_train_is_divided(
    real_cifar10, tmp_path, tmp_path_factory, write_small_records
):
    info = sources.resolve(SourceSettings(dataset="cifar10", origin="tfds", tfds_data_dir=str(real_cifar10)), tmp_path)
    how = {"block_examples": 5_000, "validation_share": 0.1}
    folder = write_small_records(source=info, data_dir=str(real_cifar10), **how)
    manifest = read_manifest(folder)
    assert manifest["dataset_verified"] is True
    for split, expected in CONTENT_DIGESTS["cifar10"].items():
        parts = ("train", "validation") if split == "train" else (split,)
        examples = (
            parse_example(record)
            for part in parts
            for path in folder.glob(f"*-{part}.tfrecord-*")
            for record in read_records(path, check_crc=False)
        )
        each = sorted(hashlib.sha256(bytes([e["label"]]) + e["image"]).digest() for e in examples)
        assert hashlib.sha256(b"".join(each)).hexdigest() == expected


@pytest.fixture(scope="module")
def held_out_records(write_small_records) -> Path:
    return write_small_records(validation_share=0.2)


def keys_of(folder: Path, split: str) -> set[str]:
    paths = sorted(folder.glob(f"*-{split}.tfrecord-*"))
    found = [parse_example(record)["key"].decode() for path in paths for record in read_records(path, check_crc=False)]
    assert len(set(found)) == len(found)
    return set(found)


def test_a_validation_share_divides_the_train_split_and_leaves_test_alone(held_out_records, small_records):
    every = {f"train-{index:09d}" for index in range(403)}
    # The key alone decides.
    held_out = {key for key in every if splits.split_of(key, test_share=0, validation_share=0.2) == "validation"}
    assert keys_of(held_out_records, "validation") == held_out
    assert keys_of(held_out_records, "train") == every - held_out
    assert 50 < len(held_out) < 110
    test = {name: digest for name, digest in shard_bytes(small_records).items() if "-test." in name}
    assert test.items() <= shard_bytes(held_out_records).items()


def test_the_validation_split_is_in_the_manifest_with_its_own_counts_and_digest(held_out_records, small_records):
    manifest, whole = read_manifest(held_out_records), read_manifest(small_records)
    assert list(manifest["splits"]) == ["train", "validation", "test"]
    entries = [entry for entry in manifest["files"] if entry.get("split") == "validation"]
    assert [entry["shard_index"] for entry in entries] == [0, 1]
    images, labels = placeholder_images.draw_block("train", 0, 403)
    held_out = sorted(int(key[-9:]) for key in keys_of(held_out_records, "validation"))
    found = manifest["splits"]["validation"]
    assert sum(entry["num_records"] for entry in entries) == found["num_examples"] == len(held_out)
    assert list(found["label_counts"].values()) == np.bincount(labels[held_out], minlength=10).tolist()
    each = sorted(hashlib.sha256(bytes([labels[index]]) + images[index].tobytes()).digest() for index in held_out)
    assert found["content_digest"] == hashlib.sha256(b"".join(each)).hexdigest()
    for label, count in whole["splits"]["train"]["label_counts"].items():
        assert count == sum(manifest["splits"][split]["label_counts"][label] for split in ("train", "validation"))


def test_tfds_and_verification_read_the_validation_split(held_out_records):
    count = read_manifest(held_out_records)["splits"]["validation"]["num_examples"]
    builder = tfds.builder_from_directory(held_out_records)
    examples = list(builder.as_dataset(split="validation").as_numpy_iterator())
    assert {example["key"].decode() for example in examples} == keys_of(held_out_records, "validation")
    assert builder.info.splits["validation"].num_examples == len(examples) == count
    verify_artifact(held_out_records)


def test_seed_and_number_of_shards_change_the_order_and_no_split(held_out_records, write_small_records):
    other = write_small_records(validation_share=0.2, seed=1, train_shards=5)
    assert not set(shard_bytes(other).values()) & set(shard_bytes(held_out_records).values())
    assert read_manifest(other)["splits"] == read_manifest(held_out_records)["splits"]


@pytest.mark.parametrize(
    ("block_examples", "options"),
    [(10_000, ""), (7, "--direct_running_mode=multi_threading --direct_num_workers=3")],
    ids=["one block", "small blocks by threads"],
)
def test_blocks_and_threads_change_no_byte_of_any_split(block_examples, options, held_out_records, write_small_records):
    again = write_small_records(validation_share=0.2, block_examples=block_examples, runner_options=options)
    assert shard_bytes(again) == shard_bytes(held_out_records)


def test_train_and_validation_together_are_verified_against_the_known_digest(
    small_records, write_small_records, monkeypatch
):
    known = {split: entry["content_digest"] for split, entry in read_manifest(small_records)["splits"].items()}
    monkeypatch.setitem(CONTENT_DIGESTS, "synthetic", known)
    assert read_manifest(write_small_records(validation_share=0.2))["dataset_verified"] is True
    monkeypatch.setitem(CONTENT_DIGESTS, "synthetic", {**known, "train": known["test"]})
    assert read_manifest(write_small_records(validation_share=0.2))["dataset_verified"] is False


@pytest.mark.parametrize("share", [1e-9, 1 - 1e-9])
def test_a_share_that_leaves_a_split_without_an_example_is_refused(share, write_small_records):
    with pytest.raises(SettingsError, match=r"\[Records\] validation_share.*403 examples"):
        write_small_records(validation_share=share)


@given(num_examples=st.integers(0, 10**7), num_shards=st.integers(1, 10_000))
def test_shard_bounds_cover_everything_and_differ_by_one(num_examples, num_shards):
    bounds = plan.shard_bounds(num_examples, num_shards)
    sizes = [stop - start for start, stop in bounds]
    assert len(bounds) == num_shards
    assert bounds[0][0] == 0
    assert bounds[-1][1] == num_examples
    assert all(left[1] == right[0] for left, right in itertools.pairwise(bounds))
    assert max(sizes) - min(sizes) <= 1


@given(num_examples=st.integers(0, 300), seed=st.integers(0, 2**31 - 1))
def test_example_order_is_a_permutation(num_examples, seed):
    assert sorted(plan.example_order([f"train-{index:09d}" for index in range(num_examples)], seed)) == list(
        range(num_examples)
    )


def test_a_worker_is_given_the_places_of_its_block_and_orders_nothing_itself(small_source, tmp_path, monkeypatch):
    settings = RecordsSettings(train_shards=3, test_shards=2, validation_share=0.2)
    sizes = splits.split_sizes(small_source, Location(), 0.2)
    job = plan.Job(small_source, Location(), settings, "", SharedFolder(str(tmp_path)), 60, sizes)
    job.write_positions()
    monkeypatch.setattr(plan, "example_positions", None)
    monkeypatch.setattr(plan, "split_of_each", None)
    places = [tuple(place) for block in job.blocks("train") for place in job.positions(block).tolist()]
    shards = job.shards_of("train")
    assert sorted(places) == [(n, place) for n, shard in enumerate(shards) for place in range(shard["num_records"])]
    assert {shard["split"] for shard in shards} == {"train", "validation"}


def test_two_records_of_one_place_are_found(write_small_records, monkeypatch):
    places = plan.Job.positions
    monkeypatch.setattr(plan.Job, "positions", lambda job, block: np.maximum(places(job, block), [0, 1]))
    with pytest.raises(DamagedArtifactError, match=r"expected statistics of \d+ records, got \d+"):
        write_small_records()


def test_example_order_is_pinned():
    # The records' bytes follow from it: a change here is a change of every artifact.
    assert plan.example_order([f"train-{index:09d}" for index in range(10)], 0).tolist() == [
        5,
        4,
        7,
        0,
        2,
        3,
        8,
        9,
        6,
        1,
    ]


def test_the_placeholder_has_the_requested_size(write_small_records, small_source):
    few = dataclasses.replace(small_source, num_examples={"train": 6, "test": 3})
    manifest = read_manifest(write_small_records(source=few, image_size=16))
    assert manifest["image"]["shape"] == manifest["feature_spec"]["image"]["shape"] == [16, 16, 3]


def test_source_info_survives_json():
    info = SourceInfo(
        dataset="d", origin="tfds", version="1.0.0", features=image_spec((8, 9, 1), "png"), label_names=("a", "b"),
        num_examples={"train": 2, "test": 1},
    )  # fmt: skip
    assert SourceInfo.from_json(info.to_json()) == info
