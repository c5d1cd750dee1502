"""A folder of images as a source: what is found in it, and what is refused."""

import os

import pytest
from image_files import plain_file, write_folder, written_png

from pipeline import sources
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.settings.data import SourceSettings
from pipeline.sources.file_source import natural
from pipeline.sources.files import INDEX_NAME, read_index


def listed(folder, tmp_path, **settings):
    """The info of a folder, and split → (path, label's name) of each example."""
    target = tmp_path / "listed"
    target.mkdir()
    info = sources.resolve(SourceSettings(dataset="folder", path=str(folder), **settings), target)
    splits = read_index(str(target / INDEX_NAME)).splits
    return info, {
        split: [(path, info.label_names[label]) for path, label in zip(one.paths, one.labels, strict=True)]
        for split, one in splits.items()
    }


def refused(folder, error=SettingsError, **settings) -> str:
    with pytest.raises(error) as refusal:
        sources.resolve(SourceSettings(**{"dataset": "folder", "path": str(folder), **settings}), folder.parent)
    assert type(refusal.value) is error
    assert "[Source]" in str(refusal.value)
    return str(refusal.value)


def test_a_folder_for_each_label_with_others_below_it(tmp_path):
    folder = write_folder(
        tmp_path / "My Photos",
        dogs={"a.png": plain_file("d", 0), "2019/march/b.png": plain_file("d", 1)},
        cats={"train/a.png": plain_file("c", 0)},
    )
    (folder / "LICENSE").write_text("none")
    (folder / "cats" / ".DS_Store").write_text("none")
    info, splits = listed(folder, tmp_path)
    assert info.label_names == ("cats", "dogs")
    assert splits == {
        "train": [("cats/train/a.png", "cats"), ("dogs/2019/march/b.png", "dogs"), ("dogs/a.png", "dogs")]
    }
    assert (info.dataset, info.origin, info.test_share) == ("my_photos", "folder", 0.2)


def test_folders_of_splits(tmp_path):
    folder = tmp_path / "images"
    for split, count in {"train": 3, "test": 2, "validation": 1}.items():
        write_folder(folder / split, a=count, b=count)
    info, splits = listed(folder, tmp_path)
    assert info.num_examples == {"train": 6, "validation": 2, "test": 4}
    assert info.test_share == 0
    assert splits["validation"] == [("validation/a/000.png", "a"), ("validation/b/000.png", "b")]


def test_a_label_may_be_called_train(tmp_path):
    info, _ = listed(write_folder(tmp_path / "traffic", car=1, train={"freight/a.png": plain_file("t", 0)}), tmp_path)
    assert info.label_names == ("car", "train")


def test_labels_txt_says_the_order(tmp_path):
    folder = write_folder(tmp_path / "images", one=1, two=1, three=1)
    (folder / "labels.txt").write_text("\ufeffone\r\ntwo\r\n\r\nthree\r\nfour\r\n", encoding="utf-8")
    info, splits = listed(folder, tmp_path)
    assert info.label_names == ("one", "two", "three", "four")
    assert splits["train"][1] == ("three/000.png", "three")


def test_the_path_of_the_folder_makes_no_difference(tmp_path):
    info, _ = listed(write_folder(tmp_path / "here" / "images", a=2, b=2), tmp_path)
    again = write_folder(tmp_path / "there" / "images", a=2, b=2)
    os.utime(again / "a" / "000.png", (1, 1))
    assert sources.resolve(SourceSettings(dataset="folder", path=f"{again}/"), tmp_path) == info


def test_links_inside_the_folder_are_followed_once(tmp_path):
    folder = write_folder(tmp_path / "images", a=2, b=1)
    (folder / "b" / "same.png").symlink_to("../a/000.png")
    (folder / "b" / "circle").symlink_to("..")
    _, splits = listed(folder, tmp_path)
    assert ("b/same.png", "b") in splits["train"]
    assert len(splits["train"]) == 4


@pytest.mark.parametrize("link_first", [True, False])
def test_a_folder_has_its_own_name_whatever_links_to_it(tmp_path, link_first):
    folder = write_folder(tmp_path / "images", daisy=2, **({} if link_first else {"rose": 2}))
    (folder / "rose2").symlink_to("rose")
    write_folder(folder, **({"rose": 2} if link_first else {}))
    info, splits = listed(folder, tmp_path)
    assert info.label_names == ("daisy", "rose")
    assert len(splits["train"]) == 4


def test_a_link_to_itself_and_what_is_no_file_are_bad_examples_and_not_waited_for(tmp_path):
    folder = write_folder(tmp_path / "images", a=2, b=2)
    (folder / "a" / "loop").symlink_to("loop")
    os.mkfifo(folder / "b" / "pipe.jpg")
    assert refused(folder, DamagedArtifactError).splitlines()[1:] == [
        "  a/loop: cannot be read: Too many levels of symbolic links",
        "  b/pipe.jpg: cannot be read: no regular file",
    ]


def empty(tmp_path):
    return write_folder(tmp_path / "images")


def no_labels(tmp_path):
    folder = write_folder(tmp_path / "images")
    (folder / "a.png").write_bytes(plain_file("a", 0))
    return folder


def one_label(tmp_path):
    return write_folder(tmp_path / "images", cats=2)


def a_split_by_another_name(tmp_path):
    for split in ("train", "eval"):
        write_folder(tmp_path / "images" / split, a=1, b=1)
    return tmp_path / "images"


def labels_txt_lacks_one(tmp_path):
    folder = write_folder(tmp_path / "images", cats=1, dogs=1)
    (folder / "labels.txt").write_text("dogs\n")
    return folder


def labels_txt_is_no_text(tmp_path):
    folder = write_folder(tmp_path / "images", cats=1, dogs=1)
    (folder / "labels.txt").write_bytes(b"\xff\xfe\x00")
    return folder


def a_label_of_two_lines(tmp_path):
    return write_folder(tmp_path / "images", **{"cats\nand more": 1, "dogs": 1})


def a_label_in_latin_1(tmp_path):
    return write_folder(tmp_path / "images", **{os.fsdecode(b"caf\xe9"): 1, "dogs": 1})


def a_linked_folder(tmp_path):
    write_folder(tmp_path / "elsewhere", birds=1)
    folder = write_folder(tmp_path / "images", cats=1, dogs=1)
    (folder / "birds").symlink_to(tmp_path / "elsewhere" / "birds")
    return folder


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda tmp_path: tmp_path / "nowhere", "It does not exist. Change it"),
        (
            lambda tmp_path: write_folder(tmp_path, a=1) / "a" / "000.png",
            "It is a file. Change it",
        ),
        (empty, "Found 0 images but no label folders."),
        (
            no_labels,
            "Found 1 image but no label folders. For a folder of one label, pass the folder above it. For labels",
        ),
        (one_label, "expected at least two labels, got '{}'. Found: cats."),
        (a_split_by_another_name, "Found 'eval'. Rename folders of splits"),
        (
            labels_txt_lacks_one,
            "one line per label in labels.txt, got '{}'. Missing: 'cats'",
        ),
        (labels_txt_is_no_text, "labels.txt is not in UTF-8"),
        (a_label_of_two_lines, r"Rename 'cats\nand more'"),
        (a_label_in_latin_1, r"Rename 'caf\udce9'"),
        (a_linked_folder, "images/birds is a link to"),
    ],
)
def test_a_folder_that_cannot_be_a_source(make, said, tmp_path):
    folder = make(tmp_path)
    message = refused(folder)
    assert said.format(folder) in message
    assert "--Source-path" in message
    assert "\n" not in message


def with_bad_ones(tmp_path, **labels):
    """Twelve images, and four that are none."""
    bad = {"notes": b"", "b.jpg": b"no image", "bomb.png": written_png(60_000, 60_000, 8)}
    folder = write_folder(tmp_path / "images", cats=6, dogs=6, bad=bad, **labels)
    (folder / "cats" / "out.png").symlink_to("/etc/hostname")
    (folder / "cats" / "gone.png").symlink_to("nothing")
    return folder


def test_all_that_cannot_be_decoded_are_listed(tmp_path):
    message = refused(with_bad_ones(tmp_path), DamagedArtifactError)
    assert "5 of 17 images cannot be used" in message
    assert "skip them with --Source-on-bad-example skip, which is" in message
    assert message.splitlines()[1:] == [
        "  bad/b.jpg: not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image",
        "  bad/bomb.png: claims too many pixels: more than 100,000,000",
        "  bad/notes: empty",
        "  cats/gone.png: file not found",
        "  cats/out.png: a link to a file outside the folder",
    ]


def test_undecodable_files_are_left_out_on_request(tmp_path, caplog):
    folder = with_bad_ones(tmp_path)
    info, splits = listed(folder, tmp_path, on_bad_example="skip", max_bad_share=0.3)
    assert info.num_examples == {"train": 12}
    assert not any(path.startswith("bad") for path, _ in splits["train"])
    assert info.skipped == {
        "a link to a file outside the folder": 1,
        "claims too many pixels": 1,
        "empty": 1,
        "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image": 1,
        "file not found": 1,
    }
    assert "Skipping 5 of 17 images" in caplog.text
    assert "cats/out.png" in caplog.text


def test_more_than_a_share_are_not_left_out(tmp_path):
    message = refused(with_bad_ones(tmp_path), DamagedArtifactError, on_bad_example="skip", max_bad_share=0.2)
    assert "5 of 17 images cannot be used, more than [Source] max_bad_share = 0.2" in message
    assert "bad/notes: empty" in message


def test_a_folder_without_usable_images_is_refused(tmp_path):
    folder = write_folder(tmp_path / "images", a={"1": b"no"}, b={"1": b"no"})
    assert "valid images in the train split" in refused(folder, on_bad_example="skip", max_bad_share=1)


def test_splits_may_be_called_otherwise_and_the_log_says_so(tmp_path, caplog):
    caplog.set_level("INFO")
    for split in ("TRAIN", "val", "dev", "Test"):
        write_folder(tmp_path / "images" / split, a=1, b=1)
    info = sources.resolve(SourceSettings(dataset="folder", path=str(tmp_path / "images")), tmp_path)
    assert info.num_examples == {"train": 2, "validation": 4, "test": 2}
    assert info.label_names == ("a", "b")
    assert "Reading TRAIN as the train split" in caplog.text
    assert "val as the validation split" in caplog.text


def test_labels_are_in_their_natural_order(tmp_path):
    labels = {f"class_{number}": 1 for number in (10, 2, 1, 12, 11)}
    info = sources.resolve(
        SourceSettings(dataset="folder", path=str(write_folder(tmp_path / "images", **labels))), tmp_path
    )
    assert info.label_names == ("class_1", "class_2", "class_10", "class_11", "class_12")
    assert sorted(["10", "-2", "b", "2", "a10", "a9", "007"], key=natural) == ["-2", "2", "007", "10", "a9", "a10", "b"]


def test_files_with_other_suffixes_are_ignored(tmp_path, caplog):
    caplog.set_level("INFO")
    others = {
        "Thumbs.db": b"x",
        "desktop.ini": b"x",
        ".DS_Store": b"x",
        "a.xml": b"<a/>",
        "b.json": b"{}",
        "c.CSV": b"x",
    }
    folder = write_folder(tmp_path / "images", cats={**others, "1.png": plain_file("a", 1)}, dogs=2)
    info = sources.resolve(SourceSettings(dataset="folder", path=str(folder)), tmp_path)
    assert (info.num_examples, info.skipped) == ({"train": 3}, {})
    assert "Ignoring 5 files whose names are not those of images, such as cats/Thumbs.db." in caplog.text


@pytest.mark.parametrize("split", ["", "train"])
def test_an_empty_folder_is_no_label(tmp_path, caplog, split):
    folder = write_folder(tmp_path / "images" / split, cats=1, dogs=1, birds={})
    settings = SourceSettings(dataset="folder", path=str(tmp_path / "images"))
    assert sources.resolve(settings, tmp_path).label_names == ("cats", "dogs")
    name = folder.relative_to(tmp_path / "images") / "birds"
    assert f"Folder {name} contains no image, so it is not a label." in caplog.text


def test_a_folder_as_the_dataset_is_refused_with_the_right_setting(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match=f"Did you mean --Source-dataset folder --Source-path {tmp_path}"):
        SourceSettings(dataset=str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(SettingsError, match="Did you mean --Source-dataset folder --Source-path photos"):
        sources.resolve(SourceSettings(dataset="photos", tfds_data_dir=str(tmp_path)), tmp_path)


def test_split_folders_without_label_folders_are_refused(tmp_path):
    folder = write_folder(tmp_path / "images", train=3, test=2)
    assert "Found 5 images but no label folders." in refused(folder)
    write_folder(tmp_path / "other" / "test", a=1, b=1)
    assert "It has no train split." in refused(tmp_path / "other")


@pytest.mark.parametrize("splits", [("",), ("train/", "test/")])
def test_labels_in_the_names_of_the_images(splits, tmp_path):
    names = {f"{split}{label}_{n}.png": plain_file(label, n) for split in splits for label in "ab" for n in (1, 2)}
    folder = write_folder(tmp_path, images=names) / "images"
    info, examples = listed(folder, tmp_path, label_pattern=r"^(?P<label>[a-z]+)_\d")
    assert info.label_names == ("a", "b")
    assert {split or "train": found for split, found in examples.items()} == {
        split.strip("/") or "train": [(f"{split}{label}_{n}.png", label) for label in "ab" for n in (1, 2)]
        for split in splits
    }


def test_a_name_that_does_not_match_the_pattern_is_refused(tmp_path):
    write_folder(tmp_path, images={"a_1.png": b"", "b_1.png": b"", "other.png": b""})
    message = refused(tmp_path / "images", label_pattern="(?P<label>[a-z]+)_")
    assert "It finds none in 1 name, such as other.png." in message
    assert "--Source-label-pattern" in message


@pytest.mark.parametrize("pattern", ["[", "([a-z]+)_"])
def test_a_pattern_without_a_label_is_refused(pattern):
    with pytest.raises(SettingsError, match="a regular expression with the group"):
        SourceSettings(dataset="folder", path="images", label_pattern=pattern)


@pytest.mark.parametrize(("folder", "name"), [("2019", "folder_2019"), ("…", "folder")])
def test_records_of_a_folder_without_a_letter_at_the_start_of_its_name(folder, name, write_records_of, tmp_path):
    # TFDS, which reads the records, requires a letter.
    records = write_records_of(write_folder(tmp_path / folder, a=20, b=20))
    assert records.info.dataset == name
    assert len(records.examples()) == 40
