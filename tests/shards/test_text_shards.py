"""Records of a text: what they hold, that others read them, and that splits are regions."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from text_records import LENGTH, LINE, write_text_records
from tfrecord import parse_example, read_records

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.records.vocabulary import Vocabulary
from pipeline.settings.data import RecordsSettings


def setup_module() -> None:
    global tfds, verify_artifact
    import tensorflow_datasets as tfds

    from pipeline.runs.verify import verify_artifact


TEXT = LINE * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_text_records(tmp_path_factory.mktemp("text"), TEXT, validation_share=0.1)


def examples(folder, split):
    """Place in the text → tokens of each example."""
    found = {}
    for shard in sorted(folder.glob(f"*-{split}.tfrecord-*")):
        for record in read_records(shard):
            example = parse_example(record)
            assert example.keys() == {"key", "tokens"}
            found[int(example["key"].decode().removeprefix("train-"))] = np.frombuffer(example["tokens"], np.uint8)
    return found


def test_each_split_is_a_region_of_the_text(folder):
    tokens = Vocabulary(tuple(sorted(set(TEXT)))).encode(TEXT)
    total = (len(TEXT) - 1) // LENGTH
    test, validation = int(total * 0.2), int((total - int(total * 0.2)) * 0.1)
    ends = {"train": (0, total - test - validation), "validation": (total - test - validation, total - test)}
    for split, (first, stop) in {**ends, "test": (total - test, total)}.items():
        found = examples(folder, split)
        assert sorted(found) == list(range(first, stop))
        for place, one in found.items():
            np.testing.assert_array_equal(one, tokens[place * LENGTH : place * LENGTH + LENGTH + 1])


def test_the_manifest_has_the_vocabulary_and_counts_what_is_predicted(folder):
    manifest = read_manifest(folder)
    assert manifest["label_names"] == sorted(set(TEXT)) == json.loads((folder / "vocabulary.json").read_text())
    assert manifest["feature_spec"]["tokens"] == {"shape": [LENGTH + 1], "dtype": "uint8", "encoding": "raw"}
    assert manifest["source"]["num_examples"] == {"train": len(TEXT)}
    assert "image" not in manifest
    for split, entry in manifest["splits"].items():
        found = examples(folder, split)
        assert entry["num_examples"] == len(found)
        assert sum(entry["label_counts"].values()) == len(found) * LENGTH
        each = sorted(hashlib.sha256(one.tobytes()).digest() for one in found.values())
        assert entry["content_digest"] == hashlib.sha256(b"".join(each)).hexdigest()
    assert manifest["findings"]["few_examples"] == {}
    # One line over and over.
    assert [headline for headline, _ in manifest["warnings"]] == ["Test sequences in the train split"]


def test_other_programs_read_them_and_they_verify(folder):
    verify_artifact(folder)
    builder = tfds.builder_from_directory(folder)
    for split in ("train", "test"):
        found = {example["key"]: example["tokens"] for example in builder.as_dataset(split=split).as_numpy_iterator()}
        expected = {f"train-{place:09d}".encode(): one for place, one in examples(folder, split).items()}
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], expected[key]) for key in found)


def test_characters_that_only_the_test_split_has_are_named(tmp_path):
    # The last fifth is the test split.
    odd = "é\x1bé"
    manifest = read_manifest(write_text_records(tmp_path, LINE * 59 + odd * 5 + LINE[len(odd) * 5 :]))
    assert manifest["findings"]["never_trained_on"] == {"\x1b": 5, "é": 10}
    (explanation,) = [one for headline, one in manifest["warnings"] if headline.startswith("Characters of the test")]
    assert explanation == "'\\x1b' (5), é (10). No model can learn them."


def test_a_size_of_images_is_refused(tmp_path):
    assert RecordsSettings(image_size=32).image_size == 32
    with pytest.raises(SettingsError, match="image_size: expected 0, because the dataset has no images"):
        write_text_records(tmp_path, image_size=32)


def test_the_real_text_is_verified_by_the_digest_of_the_original_file(tmp_path):
    if not (Path(os.environ.get("TFDS_DATA_DIR", "")) / "tiny_shakespeare").is_dir():
        pytest.skip("TFDS_DATA_DIR holds no prepared tiny_shakespeare")
    source = {"dataset": "tiny_shakespeare", "path": "", "origin": "tfds"}
    manifest = read_manifest(write_text_records(tmp_path, source=source, sequence_length=100))
    assert manifest["dataset_verified"] is True
    assert {split: entry["num_examples"] for split, entry in manifest["splits"].items()} == {
        "train": 10_038,
        "test": 1_115,
    }


def test_a_placeholder_text_becomes_text_records(tmp_path):
    source = {"dataset": "tiny_shakespeare", "path": "", "origin": "placeholder"}
    manifest = read_manifest(write_text_records(tmp_path, source=source, sequence_length=100))
    assert manifest["source"]["dataset"] == "synthetic"
    assert manifest["dataset_verified"] is False
    assert manifest["splits"]["test"]["num_examples"] == 199
