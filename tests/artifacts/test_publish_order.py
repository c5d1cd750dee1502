"""The order of the steps by which an artifact is published. A crash between two of them must lose nothing."""

import os
from pathlib import Path

import pytest

from pipeline.artifacts.manifest import MANIFEST_NAME, write_manifest
from pipeline.artifacts.publish import publishing, publishing_in_place
from pipeline.artifacts.stamps import VERIFIED_NAME


@pytest.fixture
def steps(monkeypatch) -> list[tuple[str, str]]:
    """The calls of fsync and rename, in order: name of the call, name of the file or folder."""
    calls: list[tuple[str, str]] = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def record_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def record(name, call):
        def recorded(source, target, **how):
            calls.append((name, Path(target).name))
            return call(source, target, **how)

        return recorded

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record("rename", replace))
    monkeypatch.setattr(os, "rename", record("rename", rename))
    return calls


def write_artifact(folder: Path) -> None:
    (folder / "zero.bin").write_bytes(b"0")
    (folder / "deep").mkdir()
    (folder / "deep" / "one.bin").write_bytes(b"1")
    write_manifest(folder, stage="Records", identity={}, details={})


def test_every_file_and_folder_is_on_disk_before_the_folder_gets_its_name(tmp_path, steps):
    with publishing(tmp_path / "final") as temporary:
        write_artifact(temporary)
        before = temporary.name
    renamed = steps.index(("rename", "final"))
    flushed = {name for call, name in steps[:renamed] if call == "fsync"}
    assert flushed == {"zero.bin", "deep", "one.bin", MANIFEST_NAME, VERIFIED_NAME, before}
    assert ("fsync", tmp_path.name) in steps[renamed:], "the new name is on disk, too"


def test_the_old_folder_stays_if_the_rename_fails(tmp_path, monkeypatch):
    final, rename = tmp_path / "final", os.rename
    with publishing(final) as temporary:
        write_artifact(temporary)

    def interrupt(source, target):
        if Path(source).suffix == ".tmp":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt), publishing(final) as temporary:
        (temporary / "other.bin").write_bytes(b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert (final / "zero.bin").is_file()


def test_leftovers_of_an_earlier_publication_are_no_obstacle(tmp_path):
    final = tmp_path / "final"
    for _ in range(2):
        left = tmp_path / f".final.{os.getpid()}.tmp.old"
        left.mkdir()
        write_artifact(left)
        with publishing(final) as temporary:
            write_artifact(temporary)
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_a_folder_that_is_replaced_in_place_gets_its_manifest_last(tmp_path, steps):
    with publishing_in_place(tmp_path / "final") as temporary:
        (temporary / "zero.bin").write_bytes(b"0")
        write_manifest(temporary, stage="Report", identity={}, details={})
    # Each file of stamps has a rename of its own.
    renamed = [name for call, name in steps if call == "rename" and name != VERIFIED_NAME]
    assert renamed == ["zero.bin", MANIFEST_NAME]
    first = steps.index(("rename", "zero.bin"))
    assert {"zero.bin", MANIFEST_NAME} <= {name for call, name in steps[:first] if call == "fsync"}
