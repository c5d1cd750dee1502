import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from pipeline.artefacts.manifest import (
    MANIFEST_NAME,
    check_contents,
    check_files,
    publishing,
    publishing_in_place,
    read_manifest,
    seal,
    write_manifest,
)
from pipeline.errors import DamagedArtefactError, StorageError


@pytest.fixture
def artefact(tmp_path):
    """A published folder with two files."""
    final = tmp_path / "runs" / "a-1"
    with publishing(final) as temporary:
        (temporary / "weights").write_bytes(b"12345")
        (temporary / "logs").mkdir()
        (temporary / "logs" / "events").write_bytes(b"678")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={"files": {"weights": {"count": 5}}})
    return final


def test_a_published_artefact_is_whole(artefact):
    manifest = read_manifest(artefact)
    check_contents(artefact, manifest)
    assert [(entry["name"], entry["bytes"]) for entry in manifest["files"]] == [("logs/events", 3), ("weights", 5)]
    assert manifest["files"][1]["count"] == 5
    assert [path.name for path in artefact.parent.iterdir()] == ["a-1"]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "weights").unlink(), "weights"),
        (lambda folder: (folder / "weights").write_bytes(b"1234"), "weights"),
        (lambda folder: (folder / "extra").write_bytes(b""), "extra"),
        (lambda folder: (folder / MANIFEST_NAME).unlink(), MANIFEST_NAME),
        (lambda folder: (folder / MANIFEST_NAME).write_text("{"), MANIFEST_NAME),
        (lambda folder: (folder / MANIFEST_NAME).write_text("[]"), MANIFEST_NAME),
        (lambda folder: rewrite(folder, lambda m: m["identity"].update(x=2)), MANIFEST_NAME),
        (lambda folder: rewrite(folder, lambda m: m.update(schema_version=99)), MANIFEST_NAME),
    ],
)
def test_damage_is_found_cheaply_and_named(artefact, damage, named):
    damage(artefact)
    with pytest.raises(DamagedArtefactError, match=named):
        check_files(artefact, read_manifest(artefact))


def test_a_flipped_bit_is_found(artefact):
    (artefact / "weights").write_bytes(b"12344")
    with pytest.raises(DamagedArtefactError, match="weights: manifest lists sha256"):
        check_files(artefact, read_manifest(artefact))


def test_a_touched_or_copied_artefact_is_whole(artefact, tmp_path):
    os.utime(artefact / "weights", (1, 1))
    check_files(artefact, read_manifest(artefact))
    copy = shutil.copytree(artefact, tmp_path / "copy")
    check_files(copy, read_manifest(copy))
    assert (copy / "weights").stat().st_ino != (artefact / "weights").stat().st_ino


def test_a_bit_that_rotted_in_place_is_found_by_the_whole_check_and_then_by_the_cheap_one(artefact):
    times = (artefact / "weights").stat()
    with (artefact / "weights").open("r+b") as file:
        file.write(b"2")
    os.utime(artefact / "weights", ns=(times.st_atime_ns, times.st_mtime_ns))
    check_files(artefact, read_manifest(artefact))
    with pytest.raises(DamagedArtefactError, match="weights: manifest lists sha256"):
        check_contents(artefact, read_manifest(artefact))
    with pytest.raises(DamagedArtefactError, match="weights: manifest lists sha256"):
        check_files(artefact, read_manifest(artefact))


def test_a_manifest_changed_by_other_hands_is_damaged(artefact):
    path = artefact / MANIFEST_NAME
    path.write_text(path.read_text().replace('"count": 5', '"count": 6'))
    with pytest.raises(DamagedArtefactError, match="seal"):
        read_manifest(artefact)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "logs/../../secret", 7])
def test_a_name_that_leads_out_of_the_folder_is_refused(artefact, name):
    rewrite(artefact, lambda manifest: manifest["files"][0].update(name=name))
    with pytest.raises(DamagedArtefactError, match="leads out"):
        read_manifest(artefact)


def test_a_link_is_refused(artefact, tmp_path):
    (tmp_path / "secret").write_bytes(b"12345")
    (artefact / "weights").unlink()
    (artefact / "weights").symlink_to(tmp_path / "secret")
    with pytest.raises(DamagedArtefactError, match="leads out"):
        read_manifest(artefact)


def test_an_error_on_the_way_leaves_nothing(tmp_path):
    final = tmp_path / "runs" / "a-1"

    def interrupted():
        with publishing(final) as temporary:
            (temporary / "half").write_bytes(b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(final.parent.iterdir()) == []


def test_publishing_again_replaces_the_whole_folder(artefact):
    with publishing(artefact) as temporary:
        (temporary / "only").write_bytes(b"9")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={})
    assert sorted(path.name for path in artefact.iterdir()) == [MANIFEST_NAME, "only"]
    assert [path.name for path in artefact.parent.iterdir()] == ["a-1"]


def test_publishing_in_place_keeps_what_lies_beside(tmp_path):
    final = tmp_path / "report"
    final.mkdir()
    (final / "notes.txt").write_text("mine")
    with publishing_in_place(final) as temporary:
        (temporary / "report.md").write_text("new")
        write_manifest(temporary, stage="Report", identity={}, details={})
    assert (final / "notes.txt").read_text() == "mine"
    check_files(final, read_manifest(final), shared=True)


def test_an_unwritable_root_is_named_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    final = tmp_path / "file" / "runs" / "a"
    with pytest.raises(StorageError, match=r"file/runs.*\[Storage\] root"), publishing(final):
        pytest.fail("work began")


def refused_elsewhere():
    """A file that cannot be opened, but not one below the storage root."""
    try:
        Path(__file__, "x").write_bytes(b"")
    except NotADirectoryError as error:
        raise RuntimeError("a library gave up") from error


def refused_by_the_network():
    """As a firewall refuses: an error of the operating system that has no path."""
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("fail", [refused_elsewhere, refused_by_the_network])
def test_an_error_of_another_place_is_no_storage_error(tmp_path, fail):
    with pytest.raises((RuntimeError, OSError)) as raised, publishing(tmp_path / "runs" / "a"):
        fail()
    assert not isinstance(raised.value, StorageError)


def test_a_full_disk_is_a_storage_error_where_the_artefact_goes_and_nowhere_else(tmp_path, disk):
    full = disk(1)

    def fill():
        with (full / "ballast").open("wb") as file:
            file.write(bytes(2_000_000))

    with pytest.raises(OSError, match="No space left") as raised, publishing(tmp_path / "runs" / "a"):
        fill()
    assert raised.value.filename is None, "what a write says has no path"
    with pytest.raises(StorageError, match="No space left"), publishing(full / "runs" / "a"):
        fill()


@pytest.mark.parametrize("form", ["{}: [Errno 13] Permission denied", "{}; No space left on device"])
def test_what_a_library_says_of_a_file_of_the_artefact_is_a_storage_error(tmp_path, form):
    with pytest.raises(StorageError, match="cannot be written"), publishing(tmp_path / "runs" / "a") as temporary:
        raise RuntimeError(form.format(temporary / "weights"))


def rewrite(folder, change):
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    change(manifest)
    manifest["seal"] = seal(manifest)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
