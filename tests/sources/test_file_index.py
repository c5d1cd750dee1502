"""What has changed since the files of a source were listed."""

import os
import shutil
from collections import Counter

import pytest
from image_files import plain_file, write_folder

from pipeline import sources
from pipeline.artifacts import stamps
from pipeline.errors import SettingsError
from pipeline.settings.data import SourceSettings
from pipeline.shards.splits import splits_by_label
from pipeline.sources import files
from pipeline.sources.files import path_key
from pipeline.sources.source import kind_of


def changes(settings, artifact) -> list[str]:
    return sorted(kind_of(settings).changed({}, artifact))


class Listed:
    """A folder of images, listed once."""

    def __init__(self, tmp_path) -> None:
        self.folder = write_folder(tmp_path / "images", cats=3, dogs=3, bad={"a.jpg": b"no image"})
        self.settings = SourceSettings(
            dataset="folder", path=str(self.folder), on_bad_example="skip", max_bad_share=1.0
        )
        (tmp_path / "listing").mkdir()
        self.info = sources.resolve(self.settings, tmp_path / "listing")
        self.artifact = tmp_path / "listing"

    def changes(self) -> list[str]:
        return changes(self.settings, self.artifact)


@pytest.fixture
def listed(tmp_path):
    return Listed(tmp_path)


def other(path):
    """Another content of the same length, at the same time: told by nothing but itself."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_an_unchanged_folder_has_no_changes(listed):
    assert listed.changes() == []


def test_a_touched_file_has_not_changed_and_a_copy_of_all_neither(listed):
    for path in listed.folder.rglob("*.*"):
        os.utime(path, (1, 1))
    assert listed.changes() == []
    shutil.copytree(listed.folder, listed.folder.with_name("copy"))
    shutil.rmtree(listed.folder)
    listed.folder.with_name("copy").rename(listed.folder)
    assert listed.changes() == []


def test_another_file_of_the_same_size_and_time_has_changed(listed):
    # As `cp -p` and `rsync -a` leave it.
    path = listed.folder / "cats" / "001.png"
    before = path.stat()
    other(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert listed.changes() == ["cats/001.png has changed"]


def test_a_compared_file_is_not_read_again(listed, monkeypatch):
    for path in listed.folder.rglob("*.*"):
        os.utime(path, (1, 1))
    assert listed.changes() == []
    # Not even by another process, which this stands for.
    stamps._digest_once.cache_clear()
    monkeypatch.setattr(files, "file_digest", lambda path: pytest.fail(f"{path} is read"))
    assert listed.changes() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: other(folder / "cats" / "001.png"), ["cats/001.png has changed"]),
        (lambda folder: (folder / "cats" / "001.png").unlink(), ["cats/001.png was removed"]),
        (lambda folder: (folder / "cats" / "n.png").write_bytes(plain_file("n", 1)), ["cats/n.png was added"]),
        (
            lambda folder: (folder / "cats" / "001.png").rename(folder / "dogs" / "009.png"),
            ["cats/001.png was removed", "dogs/009.png was added"],
        ),
        (lambda folder: (folder / "bad" / "a.jpg").unlink(), ["bad/a.jpg was removed"]),
        (lambda folder: other(folder / "bad" / "a.jpg"), ["bad/a.jpg has changed"]),
        (lambda folder: (folder / "labels.txt").write_text("dogs\ncats\nbad\n"), ["labels.txt was added"]),
        (lambda folder: (folder / ".hidden").write_text(""), []),
        (lambda folder: (folder / "cats" / "x\ny.png").write_bytes(b""), [r"'cats/x\ny.png' was added"]),
    ],
)
def test_changed_files_are_named(listed, change, said):
    change(listed.folder)
    assert listed.changes() == said


def test_a_changed_label_file_is_named_once(listed, tmp_path):
    listing = listed.folder / "labels.txt"
    listing.write_text("cats\ndogs\nbad\n")
    (tmp_path / "again").mkdir()
    sources.resolve(listed.settings, tmp_path / "again")
    listing.unlink()
    assert changes(listed.settings, tmp_path / "again") == ["labels.txt was removed"]


def test_a_folder_that_is_no_source_any_more_says_why(listed):
    shutil.rmtree(listed.folder)
    with pytest.raises(SettingsError, match="It does not exist"):
        listed.changes()


def test_files_that_a_table_lists_are_looked_at_and_those_that_were_not_there(tmp_path):
    folder = write_folder(tmp_path / "images", a=3, b=3)
    table = folder / "labels.csv"
    table.write_text("path,label\na/000.png,a\na/001.png,a\nb/000.png,b\ngone.png,b\n")
    settings = SourceSettings(dataset="table", path=str(table), on_bad_example="skip", max_bad_share=0.5)
    sources.resolve(settings, tmp_path)

    # One that the table does not list is no change.
    (folder / "a" / "002.png").unlink()
    os.utime(table, (1, 1))
    assert changes(settings, tmp_path) == []
    (folder / "b" / "000.png").unlink()
    (folder / "gone.png").write_bytes(plain_file("gone", 0))
    assert changes(settings, tmp_path) == ["b/000.png was removed", "gone.png was added"]
    table.write_text("path,label\na/000.png,a\n")
    assert "labels.csv has changed" in changes(settings, tmp_path)
    renamed = table.rename(table.with_suffix(".CSV"))
    settings = SourceSettings(dataset="table", path=str(renamed), on_bad_example="skip", max_bad_share=0.5)
    assert {"labels.CSV was added", "labels.csv was removed"} <= set(changes(settings, tmp_path))
    assert "labels.txt was removed" not in changes(settings, tmp_path)


def test_added_and_removed_files_move_few_others_of_their_label_and_none_of_another(write_records_of, tmp_path):
    folder = write_folder(tmp_path / "images", cats=40, dogs=40, owls=40)
    before = {path: split for path, (split, _) in write_records_of(folder, validation_share=0.25).examples().items()}
    per_label = {"test": 8, "validation": 8, "train": 24}
    assert Counter((path[:4], split) for path, split in before.items()) == {
        (label, split): count for label in ("cats", "dogs", "owls") for split, count in per_label.items()
    }
    write_folder(tmp_path / "more", cats=10, birds=10)
    shutil.copytree(tmp_path / "more" / "birds", folder / "birds")
    (folder / "cats" / "000a.png").write_bytes(plain_file("added", 0))
    (folder / "dogs" / "007.png").unlink()
    after = {path: split for path, (split, _) in write_records_of(folder, validation_share=0.25).examples().items()}
    assert set(before) - set(after) == {"dogs/007.png"}
    moved = Counter(path[:4] for path in before if path in after and before[path] != after[path])
    assert moved["owls"] == 0
    assert max(moved.values(), default=0) <= 2
    paths = sorted(after)
    keys, labels = [path_key(path) for path in paths], [path.partition("/")[0] for path in paths]
    expected = splits_by_label(keys, labels, test_share=0.2, validation_share=0.25)
    assert after == dict(zip(paths, expected, strict=True))
