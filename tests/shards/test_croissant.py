"""The Croissant metadata of records, as mlcroissant reads them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from image_files import plain_file, write_folder
from text_records import write_text_records
from tfrecord import parse_example, read_records

from pipeline.artifacts.manifest import read_manifest
from pipeline.sources import placeholder_images

mlcroissant = pytest.importorskip("mlcroissant")


def opened(records: Path):
    """The dataset, without errors, and the properties that mlcroissant misses."""
    dataset = mlcroissant.Dataset(str(records / "croissant.json"))
    issues = dataset.metadata.ctx.issues
    assert issues.errors == set()
    return dataset, sorted(str(warning).split('"')[1].rpartition("/")[2] for warning in issues.warnings)


def test_mlcroissant_finds_no_error_and_returns_the_bytes_of_all_shards(small_records, caplog):
    dataset, missing = opened(small_records)
    assert "context" not in caplog.text
    assert missing == ["citeAs", "datePublished", "license"]
    manifest = read_manifest(small_records)
    for split in manifest["splits"]:
        found = {row[f"{split}/filename"].decode(): row[f"{split}/content"] for row in dataset.records(split)}
        expected = [file["name"] for file in manifest["files"] if file.get("split") == split]
        assert [*found] == expected
        assert all(content == (small_records / name).read_bytes() for name, content in found.items())


def test_examples_are_read_from_the_bytes_and_labels_have_their_names(small_records, tmp_path):
    dataset, _ = opened(small_records)
    labels = [(row["labels/index"], row["labels/name"]) for row in dataset.records("labels")]
    assert labels == [*enumerate(placeholder_images.LABEL_NAMES)]
    found = []
    for row in dataset.records("test"):
        (tmp_path / "shard").write_bytes(row["test/content"])
        found += [parse_example(record) for record in read_records(tmp_path / "shard")]
    assert len(found) == read_manifest(small_records)["splits"]["test"]["num_examples"]
    assert len(found[0]["image"]) == 32 * 32 * 3


def test_a_dataset_of_tfds_has_its_citation_page_and_license(small_source, write_small_records, tmp_path):
    facts = {
        "citation": "@misc{x, title={</script><b>}}",
        "redistributionInfo": {"license": "CC BY 4.0"},
        "location": {"urls": ["https://example.org/x", "https://example.org/y"]},
    }
    (tmp_path / "x" / "1.0.0").mkdir(parents=True)
    (tmp_path / "x" / "1.0.0" / "dataset_info.json").write_text(json.dumps(facts))
    records = write_small_records(source=replace(small_source, prepared_as="x/1.0.0"), data_dir=str(tmp_path))
    dataset, missing = opened(records)
    assert missing == ["datePublished"]
    metadata = dataset.metadata
    assert (metadata.cite_as, metadata.license) == (facts["citation"], ["CC BY 4.0"])
    assert metadata.url == "https://example.org/x"
    assert "<" not in (records / "croissant.json").read_text(), "it may stand in a script element of a web page"


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_metadata_of_tfds_that_cannot_be_read_are_left_out(small_source, tmp_path, content):
    from pipeline.shards.metadata import write_croissant
    from pipeline.sources import Location

    (tmp_path / "dataset_info.json").write_text(content)
    location = Location(tfds_data_dir=str(tmp_path))
    write_croissant(tmp_path, replace(small_source, prepared_as="."), small_source.features, [], location)
    assert "citeAs" not in json.loads((tmp_path / "croissant.json").read_text())


def test_names_of_a_dataset_and_of_labels_are_only_text(tmp_path, write_records_of):
    names = ["<b>", 'a "quote"', '{"@id": "x"}', "ünï"]
    folder = write_folder(tmp_path / "[odd] & name*", **{name: {"a.png": plain_file(name, 0)} for name in names})
    for name in names:
        (folder / name / "b.png").write_bytes(plain_file(name, 1))
    records = write_records_of(folder)
    dataset, _ = opened(records.folder)
    assert sorted(row["labels/name"] for row in dataset.records("labels")) == sorted(names)
    assert dataset.metadata.name == records.info.dataset
    assert len([*dataset.records("train")]) == 2


def test_records_of_a_text_have_shards_and_no_labels(tmp_path):
    dataset, _ = opened(write_text_records(tmp_path / "text"))
    assert [record_set.id for record_set in dataset.metadata.record_sets] == ["train", "test"]
    assert len([*dataset.records("train")]) == 2
