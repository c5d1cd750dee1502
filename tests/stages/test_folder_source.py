"""A folder of images through the stages, as users run them: exit codes, reasons, what is left out."""

import csv
import os
import subprocess
import sys

import pytest
from image_files import plain_file, write_folder
from luigi_process import PROJECT, WITHOUT_PRIVILEGES, Luigi

from pipeline.artifacts.manifest import read_manifest
from pipeline.shards.summary import SKIPPED_NAME
from tasks.stage import State, Status


class FolderSource:
    """The stages Source and Records of a folder of images."""

    def __init__(self, top) -> None:
        self.folder = write_folder(top / "photos", cats=12, dogs=12)
        self.luigi = Luigi(top / "luigi", top)

    def __call__(self, stage="Records", *args):
        return self.luigi.python("-m", "tasks", stage, *self._source(), *args)

    def _source(self):
        return ["--Source-dataset", "folder", "--Source-path", str(self.folder)]

    def reasons(self, *args) -> dict[str, list[str]]:
        """Stage → reasons, of Source and Records where they are stale."""
        status = self.luigi.status(*self._source(), *args)
        return {name: status[name]["reasons"] for name in ("Source", "Records") if status[name]["state"] == "stale"}

    def manifest(self, kind: str) -> dict:
        (name,) = self.luigi.artifacts(kind)
        return read_manifest(self.luigi.root / kind / name)


@pytest.fixture
def photos(tmp_path):
    return FolderSource(tmp_path)


@pytest.mark.slow
def test_a_change_of_a_file_is_the_reason_and_a_touched_one_is_none(photos):
    assert photos().returncode == 0
    assert photos.reasons() == {}
    os.utime(photos.folder / "cats" / "000.png", (1, 1))
    assert photos.reasons() == {}
    assert "reusing" not in photos().stderr
    (photos.folder / "cats" / "000.png").unlink()
    (photos.folder / "dogs" / "more.png").write_bytes(plain_file("more", 0))
    assert photos.reasons()["Source"] == ["cats/000.png was removed", "dogs/more.png was added"]
    states = {name: stage["state"] for name, stage in photos.luigi.status(*photos._source()).items()}
    # They may turn out fresh: that is not known before the source is looked at.
    assert states == {"Source": "stale", "Records": "waiting", "Train": "waiting", "Report": "waiting"}
    done = photos()
    assert done.returncode == 0
    assert "(stale: cats/000.png was removed; dogs/more.png was added)" in done.stderr


def test_another_name_of_the_folder_is_another_data_set(photos):
    assert photos("Source").returncode == 0
    photos.folder = photos.folder.rename(photos.folder.with_name("pictures"))
    assert photos.luigi.status(*photos._source())["Source"] == {"state": "new", "reasons": [], "remote": ""}


@pytest.mark.slow
def test_many_changes_are_counted(photos):
    assert photos("Source").returncode == 0
    for path in sorted(photos.folder.rglob("cats/*.png"))[2:]:
        path.unlink()
    assert photos.reasons()["Source"][5:] == ["and 5 more"]


def test_a_change_that_only_reading_finds_fails_once_and_the_next_run_goes_on(photos, monkeypatch):
    arguments = ("tasks", "Records", *photos._source())
    assert photos.luigi.here("tasks", "Source", *photos._source()).returncode == 0
    (photos.folder / "cats" / "000.png").write_bytes(plain_file("other", 0))
    with monkeypatch.context() as patched:
        # A file system whose stamps do not tell.
        patched.setattr("pipeline.sources.image_folder.ImageFolder.changed", lambda *_: [])
        failed = photos.luigi.here(*arguments)
    assert failed.returncode == 4
    assert "cats/000.png: the file changed after the Source stage (changed). Run again" in failed.stderr
    assert photos.luigi.here(*arguments).returncode == 0


def test_undecodable_files_end_with_exit_code_4_or_are_left_out(photos):
    (photos.folder / "cats" / "notes").write_text("no image")
    (photos.folder / "dogs" / "half.png").write_bytes(plain_file("half", 0)[:60])
    done = photos()
    assert done.returncode == 4
    assert "2 of 26 images cannot be used" in done.stderr
    assert "cats/notes: not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image" in done.stderr
    assert "dogs/half.png: damaged or cut off" in done.stderr
    assert "Traceback" not in done.stderr
    skip = ("--Source-on-bad-example", "skip", "--Source-max-bad-share")
    assert photos("Records", *skip, "0.05").returncode == 4
    assert photos("Records", *skip, "0.1").returncode == 0
    expected = {"damaged or cut off": 1, "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image": 1}
    assert photos.manifest("source")["source"]["skipped"] == expected
    manifest = photos.manifest("records")
    assert manifest["source"]["skipped"] == expected
    assert SKIPPED_NAME in [entry["name"] for entry in manifest["files"]]
    (listed,) = photos.luigi.root.glob(f"records/*/{SKIPPED_NAME}")
    with listed.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["path"], row["reason"]) for row in rows] == [
        ("cats/notes", "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image"),
        ("dogs/half.png", "damaged or cut off"),
    ]


def test_unreadable_files_are_named(photos, tmp_path):
    (photos.folder / "cats" / "000.png").chmod(0)
    (photos.folder / "dogs" / "000.png").chmod(0)
    done = without_privileges(photos)
    assert done.returncode == 4
    assert "cats/000.png: cannot be read: Permission denied" in done.stderr
    assert "dogs/000.png: cannot be read: Permission denied" in done.stderr
    (photos.folder / "cats").chmod(0)
    done = without_privileges(photos)
    (photos.folder / "cats").chmod(0o700)
    assert done.returncode == 2
    assert "cats cannot be read (Permission denied)" in done.stderr
    assert "Traceback" not in done.stderr


def without_privileges(photos):
    command = [*WITHOUT_PRIVILEGES, sys.executable, "-m", "tasks", "Source", *photos._source()]
    how = {"env": photos.luigi.environment({}), "cwd": PROJECT}
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


@pytest.mark.parametrize("dataset", ["folder", "table", "text"])
def test_status_refuses_a_path_that_cannot_be_a_source_as_a_run_does(photos, dataset):
    source = ("--Source-dataset", dataset, "--Source-path", str(photos.folder.parent / "nowhere"))
    run, status = photos.luigi.python("-m", "tasks", "Source", *source), photos.luigi.command("status", *source)
    assert (run.returncode, status.returncode, status.stdout) == (2, 2, "")
    assert "It does not exist." in status.stderr
    assert status.stderr.strip() in run.stderr
    assert "Traceback" not in run.stderr


def test_status_accepts_an_absent_path_if_the_remote_has_the_artifact(photos, monkeypatch):
    copy = Status(State.NEW, remote="built on office")
    monkeypatch.setattr("tasks.data.Source.status", lambda *_: copy)
    source = ("--Source-dataset", "folder", "--Source-path", str(photos.folder.parent / "nowhere"))
    assert photos.luigi.status(*source)["Source"]["remote"] == copy.remote
