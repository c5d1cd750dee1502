"""Images inside other files give the same records as the same images in a folder."""

import gzip
import hashlib
import io
import json
import os
import re
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from image_files import encoded, plain_file, write_folder

from pipeline import sources
from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.settings.data import SourceSettings
from pipeline.sources.file_source import kind_at
from pipeline.sources.files import INDEX_NAME, read_index
from pipeline.sources.source import kind_of

LABELS = ("cats", "dogs")


def images(split: str, label: str) -> dict[str, bytes]:
    """Name → content of the images of a label."""
    return {f"{number:02d}.png": plain_file(f"{split}{label}", number) for number in range(6)}


def rows_of(split: str) -> list[tuple[str, int, bytes]]:
    """Name, label and content of the images of a split. Labels are mixed, as in a shuffled dataset."""
    return [
        (name, number, content) for number, label in enumerate(LABELS) for name, content in images(split, label).items()
    ][::-1]


def write_parquet(
    path: Path, rows: Sequence[tuple[str | None, object, bytes | None]], *, names: Sequence[str] = LABELS
) -> Path:
    """A file as ``Dataset.to_parquet`` of Hugging Face writes it. Compared by hand with datasets 5.2.0."""
    path.parent.mkdir(parents=True, exist_ok=True)
    features = {"image": {"_type": "Image"}, "label": {"names": [*names], "_type": "ClassLabel"}}
    table = pa.table(
        {
            "image": pa.array([{"bytes": content, "path": name} for name, _, content in rows]),
            "label": pa.array([label for _, label, _ in rows]),
        }
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})} if names else {})
    pa.parquet.write_table(table, path, row_group_size=5)
    return path


def parquet_of_both_splits(top: Path) -> Path:
    rows = rows_of("train")
    write_parquet(top / "data" / "train-00000-of-00002.parquet", rows[:7])
    write_parquet(top / "data" / "train-00001-of-00002.parquet", rows[7:])
    write_parquet(top / "data" / "test-00000-of-00001.parquet", rows_of("test"))
    return top


def tars_of_both_splits(top: Path) -> Path:
    """Files as ``webdataset.ShardWriter`` writes them. Compared by hand with webdataset 1.0.2."""
    top.mkdir()
    rows = {"train-000000": rows_of("train")[:7], "train-000001": rows_of("train")[7:], "test-000000": rows_of("test")}
    for shard, examples in rows.items():
        members = {}
        for name, label, content in examples:
            key = f"{LABELS[label]}/{name.removesuffix('.png')}"
            # One file has numbers, the others have names.
            members |= {f"{key}.cls": str(label).encode()} if shard == "train-000000" else {}
            members |= {f"{key}.json": json.dumps({"label": label}).encode(), f"{key}.png": content}
        write_tar(top / f"{shard}.tar", members)
    (top / "labels.txt").write_text("\n".join(LABELS))
    return top


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_tfrecord(path: Path, examples: Sequence[Mapping[str, bytes | int]]) -> Path:
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            features = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                if isinstance(value, bytes)
                else tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                for name, value in example.items()
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


def tfrecords_of_model_garden(top: Path) -> Path:
    for split in ("train", "test"):
        examples = [
            {
                "image/encoded": content,
                "image/filename": name.encode(),
                "image/class/label": 1 + label,
                "image/class/text": LABELS[label].encode(),
            }
            for name, label, content in rows_of(split)
        ]
        write_tfrecord(top / f"{split}-00000-of-00002", examples[:7])
        write_tfrecord(top / f"{split}-00001-of-00002", examples[7:])
    return top


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "parquet": parquet_of_both_splits,
    "webdataset": tars_of_both_splits,
    "tfrecord": tfrecords_of_model_garden,
}


def shards(folder: Path) -> list[str]:
    """sha256 of the shards of each split, in order."""
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.tfrecord-*"))]


@pytest.fixture(scope="module")
def folder_shards(write_records_of, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    for split in ("train", "test"):
        write_folder(folder / split, **{label: images(split, label) for label in LABELS})
    return shards(write_records_of(folder, image_size=80).folder)


@pytest.mark.parametrize("kind", WRITERS)
def test_the_shards_are_those_of_a_folder_of_the_same_images(kind, folder_shards, write_records_of, tmp_path):
    path = WRITERS[kind](tmp_path / "images")
    assert kind_at(str(path)) == kind
    records = write_records_of(path, source={"dataset": kind}, image_size=80)
    assert records.info.label_names == LABELS
    assert shards(records.folder) == folder_shards


@pytest.mark.parametrize("shape", [(12, 10), (12, 10, 1), (12, 10, 3)])
def test_the_shards_of_arrays_are_those_of_image_files_with_the_numbers_of_the_rows(shape, write_records_of, tmp_path):
    # As keras.datasets stores them.
    images, labels = np.random.default_rng(0).integers(0, 256, (30, *shape), np.uint8), np.arange(30) % 3
    np.savez_compressed(
        tmp_path / "digits.npz", x_train=images[:20], y_train=labels[:20, None], x_test=images[20:], y_test=labels[20:]
    )
    files = write_folder(tmp_path, files={str(row): encoded(one.squeeze(), "PNG") for row, one in enumerate(images)})
    rows = [f"{row},{label},{'train' if row < 20 else 'test'}\n" for row, label in enumerate(labels)]
    table = files / "files" / "table.csv"
    table.write_text("".join(["path,label,split\n", *rows]))
    as_files = write_records_of(table, source={"dataset": "table", "split_column": "split"})
    assert kind_at(str(tmp_path / "digits.npz")) == "npz"
    as_arrays = write_records_of(tmp_path / "digits.npz", source={"dataset": "npz"})
    assert as_arrays.info.num_examples == {"train": 20, "test": 10}
    assert as_arrays.info.label_names == ("0", "1", "2")
    assert shards(as_arrays.folder) == shards(as_files.folder)


def resolved(path: Path, artifact: Path | None = None, kind: str = "parquet", **settings) -> sources.SourceInfo:
    return sources.resolve(SourceSettings(dataset=kind, path=str(path), **settings), artifact or path.parent)


def paths_of(path: Path, artifact: Path, **settings) -> dict[str, list[str]]:
    """Split → path of each image."""
    resolved(path, artifact, **settings)
    return {split: [*one.paths] for split, one in read_index(str(artifact / INDEX_NAME)).splits.items()}


def test_stored_folders_are_not_repeated_and_lead_nowhere(tmp_path):
    rows = [(f"train/cats/{number}", 0, plain_file("c", number)) for number in range(2)]
    rows += [("../../etc/passwd", 1, plain_file("d", 0)), ("C:\\d.png", 1, plain_file("d", 1))]
    path = write_parquet(tmp_path / "pets.parquet", rows)
    assert paths_of(path, tmp_path) == {"train": ["train/cats/0", "train/cats/1", "etc/passwd", "C:/d.png"]}


@pytest.mark.parametrize("name", [None, "same.png"])
def test_images_without_names_of_their_own_are_called_after_their_rows(name, tmp_path):
    rows = [(name, number // 6, plain_file("a", number)) for number in range(12)]
    path = write_parquet(tmp_path / "images" / "pets.parquet", rows)
    assert paths_of(path, tmp_path) == {"train": [str(number) for number in range(12)]}
    assert paths_of(path.parent, tmp_path)["train"][-1] == "pets.parquet/11"


def test_labels_may_be_texts_or_numbered_in_labels_txt(tmp_path):
    rows = [(f"{number}.png", f"{10 - number % 3}", plain_file("a", number)) for number in range(9)]
    path = write_parquet(tmp_path / "texts" / "pets.parquet", rows, names=())
    assert resolved(path).label_names == ("8", "9", "10")
    path = write_parquet(
        tmp_path / "numbers" / "pets.parquet", [(*row[:1], int(row[1]) - 8, row[2]) for row in rows], names=()
    )
    assert resolved(path).label_names == ("0", "1", "2")
    (path.parent / "labels.txt").write_text("owl\ncat\ndog\n")
    assert resolved(path).label_names == ("owl", "cat", "dog")


def test_the_labels_may_have_a_name_that_other_programs_write(tmp_path):
    table = pyarrow.parquet.read_table(write_parquet(tmp_path / "pets.parquet", rows_of("train"), names=()))
    for column in ("Labels", "kind"):
        pyarrow.parquet.write_table(table.rename_columns(["image", column]), tmp_path / "pets.parquet")
        if column == "Labels":
            assert resolved(tmp_path / "pets.parquet").label_names == ("0", "1")
    with pytest.raises(SettingsError, match="The file has the columns image, kind"):
        resolved(tmp_path / "pets.parquet")


def test_a_column_may_contain_the_splits(tmp_path):
    table = pyarrow.parquet.read_table(write_parquet(tmp_path / "pets.parquet", rows_of("train")))
    parts = pa.array(["train", "val", "test"] * 4)
    pyarrow.parquet.write_table(table.append_column("part", parts), tmp_path / "pets.parquet")
    info = resolved(tmp_path / "pets.parquet", split_column="part")
    assert info.num_examples == {"train": 4, "validation": 4, "test": 4}
    parts = pa.array(["train", "x", "test"] * 4)
    pyarrow.parquet.write_table(table.append_column("part", parts), tmp_path / "pets.parquet")
    with pytest.raises(SettingsError, match=r"Image 1 of .* or the split 'x'"):
        resolved(tmp_path / "pets.parquet", split_column="part")


def test_a_column_may_contain_groups(tmp_path, write_records_of):
    table = pyarrow.parquet.read_table(write_parquet(tmp_path / "pets.parquet", rows_of("train")))
    parts = pa.array([number // 2 for number in range(12)])
    pyarrow.parquet.write_table(table.append_column("camera", parts), tmp_path / "pets.parquet")
    source = {"dataset": "parquet", "group_column": "camera"}
    records = write_records_of(tmp_path / "pets.parquet", source=source)
    assert records.manifest["division"] == "group"
    assert records.listing.splits["train"].groups == [str(number // 2) for number in range(12)]
    assert records.manifest["splits"]["test"]["num_examples"] == 2
    with pytest.raises(SettingsError, match=r"\[Source\] group_column: expected a column of .*, got 'lens'"):
        resolved(tmp_path / "pets.parquet", group_column="lens")


def test_changed_added_and_removed_files_are_named(tmp_path):
    folder = parquet_of_both_splits(tmp_path / "images")
    settings = SourceSettings(dataset="parquet", path=str(folder))
    (tmp_path / "artifact").mkdir()
    sources.resolve(settings, tmp_path / "artifact")

    def changes() -> list[str]:
        return sorted(kind_of(settings).changed({}, tmp_path / "artifact"))

    assert changes() == []
    (folder / "notes.md").write_text("none")
    os.utime(folder / "data" / "test-00000-of-00001.parquet", (1, 1))
    assert changes() == []
    write_parquet(folder / "data" / "test-00000-of-00001.parquet", rows_of("other"))
    write_parquet(folder / "data" / "validation.parquet", rows_of("validation"))
    (folder / "data" / "train-00001-of-00002.parquet").unlink()
    (folder / "labels.txt").write_text("cats\ndogs\n")
    assert changes() == [
        "data/test-00000-of-00001.parquet has changed",
        "data/train-00001-of-00002.parquet was removed",
        "data/validation.parquet was added",
        "labels.txt was added",
    ]


def test_damaged_images_are_listed_and_may_be_skipped(tmp_path):
    rows = [*rows_of("train"), ("bad.png", 0, b"no image"), ("none.png", 1, None)]
    path = write_parquet(tmp_path / "pets.parquet", rows)
    with pytest.raises(DamagedArtifactError) as refusal:
        resolved(path)
    assert str(refusal.value).splitlines()[1:] == [
        "  cats/bad.png: not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image",
        "  dogs/none.png: the image is not embedded",
    ]
    info = resolved(path, on_bad_example="skip", max_bad_share=0.5)
    assert (info.num_examples["train"], sum(info.skipped.values())) == (12, 2)


def damaged(path: Path) -> Path:
    """The first half of a file, but with its end."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + content[-8:])
    return path


def missing(top: Path) -> Path:
    return top / "nowhere.parquet"


def without_files(top: Path) -> Path:
    (top / "notes.md").write_text("none")
    return top


def only_a_test_split(top: Path) -> Path:
    return write_parquet(top / "test.parquet", rows_of("test")).parent


def unlabeled(top: Path) -> Path:
    return write_parquet(top / "pets.parquet", [*rows_of("train"), ("x.png", -1, b"")])


def label_beyond_the_names(top: Path) -> Path:
    return write_parquet(top / "pets.parquet", [*rows_of("train"), ("x.png", 2, b"")])


def other_names(top: Path) -> Path:
    write_parquet(top / "1.parquet", rows_of("train"))
    return write_parquet(top / "2.parquet", rows_of("train"), names=("owls", "dogs")).parent


def link_out(top: Path) -> Path:
    write_parquet(top / "elsewhere" / "a.parquet", rows_of("train"))
    folder = write_parquet(top / "images" / "b.parquet", rows_of("train")).parent
    (folder / "a.parquet").symlink_to("../elsewhere/a.parquet")
    return folder


def several_columns(top: Path) -> Path:
    table = pyarrow.parquet.read_table(write_parquet(top / "pets.parquet", rows_of("train")))
    pyarrow.parquet.write_table(table.append_column("mask", table["image"]), top / "pets.parquet")
    return top / "pets.parquet"


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (missing, "It does not exist."),
        (without_files, "It contains no such file."),
        (only_a_test_split, "It has no file of the train split."),
        (unlabeled, "Image 12 of pets.parquet: correct the label -1 or the split 'train'."),
        (label_beyond_the_names, "Image 12 of pets.parquet: correct the label 2 or"),
        (other_names, "The files have different lists of labels."),
        (link_out, "outside the folder. Replace the link with a copy."),
        (several_columns, "[Source] image_column: expected a column of"),
    ],
)
def test_files_that_cannot_be_a_source_are_refused(write, said, tmp_path):
    path = write(tmp_path)
    with pytest.raises(SettingsError) as refusal:
        resolved(path)
    assert said in str(refusal.value)
    assert "--Source-" in str(refusal.value)


def test_a_damaged_file_is_named(tmp_path):
    path = damaged(write_parquet(tmp_path / "pets.parquet", rows_of("train")))
    with pytest.raises(DamagedArtifactError, match=re.escape(f"{path} cannot be read")):
        resolved(path)


def test_tars_contain_labels_as_numbers_or_texts_and_other_files(tmp_path):
    image = {number: plain_file("a", number) for number in range(4)}
    members = {
        "README.md": b"none",
        "./a/1.left.PNG": image[0],
        "./a/1.cls": b"3\n",
        "a/2.x.jpg": image[1],
        "a/2.cls": b"cat",
        "3.json": b'{"label": "cat", "width": 16}',
        "3.png": image[2],
        "only.cls": b"1",
    }
    path = write_tar(tmp_path / "pets.tar", members)
    assert resolved(path, tmp_path, "webdataset").label_names == ("3", "cat")
    assert read_index(str(tmp_path / INDEX_NAME)).splits["train"].paths == ["a/1.left.PNG", "a/2.x.jpg", "cat/3.png"]


def test_links_and_devices_in_tars_are_not_followed(tmp_path):
    path = write_tar(tmp_path / "pets.tar", {"1.cls": b"a", "2.png": plain_file("a", 1), "2.cls": b"b"})
    with tarfile.open(path, "a") as tar:
        for kind, ending in ((tarfile.SYMTYPE, "png"), (tarfile.LNKTYPE, "jpg"), (tarfile.CHRTYPE, "gif")):
            member = tarfile.TarInfo(f"3.{ending}")
            member.type, member.linkname = kind, "/etc/hostname"
            tar.addfile(member)
        member = tarfile.TarInfo("3.cls")
        tar.addfile(member)
    with pytest.raises(SettingsError, match="expected at least two labels"):
        resolved(path, kind="webdataset")


@pytest.mark.parametrize(("names", "listed"), [(("cat", "T-shirt/top", "owl"), True), (("0", "1"), False)])
def test_tfrecords_of_tensorflow_datasets(names, listed, tmp_path):
    examples = [{"image": plain_file("a", number), "label": number % 2} for number in range(6)]
    path = write_tfrecord(tmp_path / "pets" / "pets-train.tfrecord-00000-of-00001", examples)
    if listed:
        (path.parent / "label.labels.txt").write_text("cat\nT-shirt/top\nowl\n")
    assert kind_at(str(path.parent)) == "tfrecord"
    info = resolved(path.parent, kind="tfrecord")
    assert (info.label_names, info.num_examples) == (names, {"train": 6})


def test_features_of_tfrecords_may_have_any_names(tmp_path):
    examples = [{"photo": plain_file("a", number), "kind": b"cat" if number % 2 else b"dog"} for number in range(6)]
    path = write_tfrecord(tmp_path / "pets.tfrecord", examples)
    info = resolved(path, kind="tfrecord", image_column="photo", label_column="kind")
    assert info.label_names == ("cat", "dog")
    with pytest.raises(SettingsError, match=r"image_column: expected a column of .*The file has the columns kind, ph"):
        resolved(path, kind="tfrecord")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tfrecord", struct.pack("<QI", 2**60, 0)),
        ("tfrecord", gzip.compress(b"x" * 100, mtime=0)),
        ("tfrecord", struct.pack("<QI", 4, 0) + b"\xff" * 8),
        ("webdataset", b"x" * 1_024),
        ("webdataset", gzip.compress(b"x" * 100, mtime=0)),
        ("npz", b"PK\x03\x04"),
    ],
)
def test_a_file_of_another_form_is_named(kind, content, tmp_path):
    path = tmp_path / "pets"
    path.write_bytes(content)
    with pytest.raises(DamagedArtifactError, match=r"pets cannot be read \(.*\)\. Replace or remove the file\."):
        resolved(path, kind=kind)


def test_a_cut_off_tar_names_the_image(tmp_path):
    path = write_tar(tmp_path / "pets.tar", {"1.cls": b"a", "1.png": plain_file("a", 1), "2.cls": b"b", "2.png": b""})
    path.write_bytes(path.read_bytes()[:1_800])
    with pytest.raises(DamagedArtifactError, match=r"pets.tar"):
        resolved(path, kind="webdataset")


def test_objects_in_arrays_are_not_loaded(tmp_path):
    class Harmful:
        def __reduce__(self):
            return Path.touch, (tmp_path / "harm",)

    np.savez(tmp_path / "pets.npz", images=np.array([Harmful()], object), labels=np.zeros(1, int))
    with pytest.raises(DamagedArtifactError, match="Object arrays cannot be loaded"):
        resolved(tmp_path / "pets.npz", kind="npz")
    assert not (tmp_path / "harm").exists()


def zeros(*shape: int, dtype: str = "uint8") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"pixels": zeros(2, 4, 4), "labels": zeros(2)}, "It has the arrays pixels, labels. Call them x_train"),
        ({"images": zeros(2, 4, 4, dtype="float32"), "labels": zeros(2)}, "images is float32 (2, 4, 4). Store uint8"),
        ({"images": zeros(2, 4, 4, 2), "labels": zeros(2)}, "images is uint8 (2, 4, 4, 2)."),
        ({"images": zeros(2, 4, 4), "labels": zeros(2, 10)}, "labels has 20 values for 2 images."),
        ({"images": zeros(0, 4, 4), "labels": zeros(0)}, "expected at least two labels"),
    ],
)
def test_other_arrays_are_refused(arrays, said, tmp_path):
    np.savez(tmp_path / "pets.npz", **arrays)
    with pytest.raises(SettingsError) as refusal:
        resolved(tmp_path / "pets.npz", kind="npz")
    assert said in str(refusal.value)


def test_an_array_that_does_not_fit_into_memory_is_not_read(tmp_path, monkeypatch):
    np.savez(tmp_path / "pets.npz", images=zeros(4, 4, 4), labels=np.arange(4))
    monkeypatch.setattr("pipeline.machine.free_memory_bytes", lambda: 300)
    with pytest.raises(DamagedArtifactError, match="more than half of the free memory"):
        resolved(tmp_path / "pets.npz", kind="npz")


def test_a_row_group_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "pets.parquet", rows_of("train"))
    monkeypatch.setattr("pipeline.sources.containers.parquet.MAX_BYTES", 1_000)
    with pytest.raises(DamagedArtifactError, match="write the file with a row_group_size of 100"):
        resolved(path)
