"""What of a dataset should be known before its figures are believed."""

import csv
import logging

import pytest
from image_files import ODD_FILES, plain_file, write_folder

from pipeline.shards.data_checks import DUPLICATES_NAME, warnings


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory, write_records_of):
    """Cats and dogs, with two test images that train holds too, one of them as a dog."""
    folder = tmp_path_factory.mktemp("doubtful") / "images"
    write_folder(folder / "train", cats=120, dogs=11, mice=1)
    cat, dog, again = plain_file("cats", 7), plain_file("dogs", 3), plain_file("cats", 9)
    new = {f"new-{number}.png": plain_file("new", number) for number in range(20)}
    write_folder(folder / "test", cats={**new, "a-cat.png": cat, "again.png": again}, dogs={"a-dog.png": dog})
    (folder / "test" / "dogs" / "no-cat.png").write_bytes(cat)
    (folder / "train" / "cats" / "twice.png").write_bytes(plain_file("cats", 20))
    return write_records_of(folder)


def test_test_images_that_train_holds_are_found_at_their_places(doubtful):
    places = doubtful.manifest["findings"]["test_in_train"]
    paths = [path for path, (split, _) in doubtful.examples().items() if split == "test"]
    assert {paths[place] for place in places} == {
        "test/cats/a-cat.png",
        "test/cats/again.png",
        "test/dogs/a-dog.png",
        "test/dogs/no-cat.png",
    }
    assert places == sorted(places)


def test_which_are_the_same_is_listed_by_path(doubtful):
    with (doubtful.folder / DUPLICATES_NAME).open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = {}
    for row in rows:
        groups.setdefault(row["image"], set()).add((row["split"], row["label"], row["name"]))
    assert sorted(map(sorted, groups.values())) == sorted(
        map(
            sorted,
            [
                {
                    ("train", "cats", "train/cats/007.png"),
                    ("test", "cats", "test/cats/a-cat.png"),
                    ("test", "dogs", "test/dogs/no-cat.png"),
                },
                {("train", "cats", "train/cats/009.png"), ("test", "cats", "test/cats/again.png")},
                {("train", "dogs", "train/dogs/003.png"), ("test", "dogs", "test/dogs/a-dog.png")},
                {("train", "cats", "train/cats/020.png"), ("train", "cats", "train/cats/twice.png")},
            ],
        )
    )
    assert DUPLICATES_NAME in [entry["name"] for entry in doubtful.manifest["files"]]


def test_the_findings_and_their_warnings(doubtful):
    findings = doubtful.manifest["findings"]
    assert findings["few_examples"] == {"mice": 1}
    assert findings["imbalance"] == {"largest": ["cats", 121], "smallest": ["mice", 1]}
    assert (findings["two_labels"], findings["duplicates"]) == (1, 5)
    warned = dict(doubtful.manifest["warnings"])
    assert list(warned) == [
        "Labels with fewer than ten examples",
        "Very unequal labels",
        "The same image with two labels",
        "Test images in the train split",
    ]
    assert "121 of cats and 1 of mice" in warned["Very unequal labels"]
    assert "4 of 24 test images" in warned["Test images in the train split"]


def test_a_label_that_only_the_test_split_has_is_named(write_records_of, tmp_path):
    write_folder(tmp_path / "images" / "train", cats=20, dogs=20)
    write_folder(tmp_path / "images" / "test", cats=5, lions=12)
    written = write_records_of(tmp_path / "images")
    assert written.manifest["findings"]["never_trained_on"] == {"lions": 12}
    headline = "Labels of the test split that are not in the train split"
    assert dict(written.manifest["warnings"])[headline] == "lions (12). No model can learn them."


def test_clean_data_give_no_warning(write_records_of, tmp_path, caplog):
    folder = write_folder(tmp_path / "images", cats=30, dogs=30)
    with caplog.at_level(logging.WARNING):
        written = write_records_of(folder)
    assert written.manifest["warnings"] == []
    assert not (written.folder / DUPLICATES_NAME).exists()
    assert not [record for record in caplog.records if record.name.startswith("pipeline")]


def test_encoded_duplicates_are_detected(write_records_of, tmp_path):
    jpeg = ODD_FILES["turned-1.jpg"][0]()
    dogs = {"b.jpg": jpeg, "c.jpg": ODD_FILES["gray.jpg"][0]()}
    folder = write_folder(tmp_path / "images", cats={"a.jpg": jpeg}, dogs=dogs)
    for number in range(40):
        (folder / "cats" / f"{number}.png").write_bytes(plain_file("more", number))
    written = write_records_of(folder, image_size=72)
    assert written.info.features["image"].encoding == "image"
    assert (written.manifest["findings"]["two_labels"], written.manifest["findings"]["duplicates"]) == (1, 1)


def test_warnings_for_several_labels_promise_only_what_their_evaluation_has():
    imbalance = {"largest": ["cat", 200], "smallest": ["dog", 2]}
    found = {"never_trained_on": {}, "few_examples": {}, "imbalance": imbalance, "two_labels": 0}
    found |= {"test_in_train": [1], "near_test_in_train": [2]}
    for has_classes in (True, False):
        text = str(warnings(found, 10, has_classes=has_classes))
        assert ("class_weight" in text) is has_classes
        assert text.count("without them") == 2 * has_classes
