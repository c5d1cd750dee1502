import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pipeline.artifacts.layout import artifact_folders
from pipeline.artifacts.manifest import MANIFEST_NAME, check_contents, check_files, read_manifest, seal, write_manifest
from pipeline.artifacts.publish import publishing, publishing_in_place, remove_artifact
from pipeline.artifacts.stamps import VERIFIED_NAME, _digest_once
from pipeline.errors import DamagedArtifactError, StorageError


@pytest.fixture
def artifact(tmp_path):
    """A published folder with two files."""
    final = tmp_path / "runs" / "a-1"
    with publishing(final) as temporary:
        (temporary / "weights").write_bytes(b"12345")
        (temporary / "logs").mkdir()
        (temporary / "logs" / "events").write_bytes(b"678")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={"files": {"weights": {"count": 5}}})
    return final


def test_a_published_artifact_is_whole(artifact):
    manifest = read_manifest(artifact)
    check_contents(artifact, manifest)
    assert [(entry["name"], entry["bytes"]) for entry in manifest["files"]] == [("logs/events", 3), ("weights", 5)]
    assert manifest["files"][1]["count"] == 5
    assert [path.name for path in artifact.parent.iterdir()] == ["a-1"]


def rewrite(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Damage that changes a manifest and seals it again: anybody can seal."""

    def damage(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST_NAME).read_text())
        change(manifest)
        manifest["seal"] = seal(manifest)
        (folder / MANIFEST_NAME).write_text(json.dumps(manifest))

    return damage


def entry(**changes: object) -> Callable[[Path], None]:
    """Damage that changes what the manifest lists of a file."""
    return rewrite(lambda manifest: manifest["files"][0].update(changes))


def link(name: str) -> Callable[[Path], None]:
    """Damage that moves a file or folder elsewhere and leaves a link to it."""

    def damage(folder: Path) -> None:
        elsewhere = folder.parent.with_name("elsewhere")
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)

    return damage


# Damage to an artifact and the words that every check names it by. Whoever reads artifacts, as status, verify and the
# remote do, reads them by these checks: their own tests need one case each.
DAMAGES = [
    (lambda folder: (folder / "weights").unlink(), "weights: expected 5 bytes, got no file"),
    (lambda folder: (folder / "weights").write_bytes(b"1234"), "weights: expected 5 bytes, got 4"),
    (lambda folder: (folder / "weights").write_bytes(b"12344"), "weights: expected sha256"),
    (lambda folder: (folder / MANIFEST_NAME).unlink(), MANIFEST_NAME),
    (lambda folder: (folder / MANIFEST_NAME).write_text("{"), MANIFEST_NAME),
    (lambda folder: (folder / MANIFEST_NAME).write_text("[]"), MANIFEST_NAME),
    (lambda folder: (folder / MANIFEST_NAME).write_text("[" * 100_000), MANIFEST_NAME),
    (rewrite(lambda manifest: manifest["identity"].update(x=2)), "fingerprint"),
    (rewrite(lambda manifest: manifest.update(schema_version=99)), "schema"),
    (rewrite(lambda manifest: manifest.pop("files")), "not a manifest"),
    (rewrite(lambda manifest: manifest.pop("created_at")), "created_at"),
    (rewrite(lambda manifest: manifest.update(created_at="2026-11-25")), "time zone"),
    (rewrite(lambda manifest: manifest.update(created_at="yesterday")), "not a manifest"),
    (rewrite(lambda manifest: manifest.update(identity=[1])), "identity"),
    (rewrite(lambda manifest: manifest["files"].append(dict(manifest["files"][0]))), "twice"),
    (rewrite(lambda manifest: manifest["files"].append({**manifest["files"][1], "name": "./weights"})), "twice"),
    *((entry(name=name), "leads out") for name in ("/etc/passwd", "../secret", "logs/../../secret", "", 7)),
    *(
        (entry(name=name), "expected printable file names")
        for name in ("n" * 300, "logs/" + "é" * 200, "n/" * 3000, "\ud800", "\x1b[31m")
    ),
    (entry(sha256="../../x"), "bytes and sha256"),
    (entry(bytes=-1), "bytes and sha256"),
    (entry(bytes=True), "bytes and sha256"),
    # A file and a folder.
    (link("weights"), "leads out"),
    (link("logs"), "leads out"),
]


@pytest.mark.parametrize("check", [check_files, check_contents])
@pytest.mark.parametrize(("damage", "words"), DAMAGES, ids=range(len(DAMAGES)))
def test_damage_is_found_and_named(artifact, damage, words, check):
    damage(artifact)
    with pytest.raises(DamagedArtifactError, match=words) as raised:
        check(artifact, read_manifest(artifact))
    assert str(artifact) in str(raised.value)


def rebuild(folder: Path, **files: bytes) -> None:
    with publishing(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={})


def names_in(folder: Path) -> set[str]:
    """Names of the files and links in a folder, apart from the stamps."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}
    return found - {VERIFIED_NAME}


def test_an_artifact_with_stray_files_is_renamed_when_it_is_rebuilt(artifact, caplog):
    (artifact / "logs" / "note.txt").write_text("mine")
    (artifact / "link").symlink_to("nowhere")
    check_contents(artifact, read_manifest(artifact))
    check_files(artifact, read_manifest(artifact))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        str(artifact / name) for name in ("link", "logs/note.txt")
    ], "each once"
    rebuild(artifact, only=b"9")
    check_contents(artifact, read_manifest(artifact))
    assert names_in(artifact) == {MANIFEST_NAME, "only"}
    (kept,) = artifact.parent.glob(f"{artifact.name}.kept-*")
    assert names_in(kept) == {MANIFEST_NAME, "weights", "logs/events", "logs/note.txt", "link"}
    assert f"is now {kept}" in caplog.text
    assert artifact_folders(artifact.parent) == [artifact]
    # A second time keeps both.
    (artifact / "note.txt").write_text("another")
    rebuild(artifact, only=b"9")
    assert len(list(artifact.parent.iterdir())) == 3


@pytest.mark.parametrize("manifest", [None, "{"])
@pytest.mark.parametrize("stray", [None, "mine.txt", "verified.json.notes", "logs/mine.txt", "weights.txt"])
def test_a_damaged_manifest_hides_no_stray_file(artifact, manifest, stray):
    (artifact / "verified.json.17.tmp").write_text("{")
    (artifact / MANIFEST_NAME).unlink()
    if manifest:
        (artifact / MANIFEST_NAME).write_text(manifest)
    if stray:
        (artifact / stray).write_text("mine")
    with publishing(artifact) as temporary:
        # TensorBoard names its files by the time.
        (temporary / "logs").mkdir()
        (temporary / "logs" / "events.of-another-time").write_bytes(b"9")
        (temporary / "weights").write_bytes(b"12345")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={})
    assert names_in(artifact) == {"logs/events.of-another-time", MANIFEST_NAME, "weights"}
    kept = [path for path in artifact.parent.iterdir() if path != artifact]
    assert [(path / stray).read_text() for path in kept] == ["mine"] * bool(stray)


def test_a_manifest_is_equal_on_all_machines(artifact, tmp_path):
    other = tmp_path / "other" / "a-1"
    with publishing(other) as temporary:
        shutil.copytree(artifact / "logs", temporary / "logs")
        (temporary / "weights").write_bytes(b"12345")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={"files": {"weights": {"count": 5}}})
    one, two = ({**read_manifest(folder), "created_at": "", "seal": ""} for folder in (artifact, other))
    assert one == two


_opened: list[str] = []
_is_listening = [False]


@cache
def _listen() -> None:
    """Note what this process opens, while that is wanted: Python has no way to remove such a hook."""

    def hook(event: str, arguments: tuple) -> None:
        if _is_listening[0] and event == "open":
            _opened.append(str(arguments[0]))

    sys.addaudithook(hook)


def opened_by_a_check(folder: Path) -> set[str]:
    """The files that the cheap check opens in a process that has digested nothing yet."""
    _listen()
    _digest_once.cache_clear()
    _opened.clear()
    _is_listening[0] = True
    try:
        check_files(folder, read_manifest(folder))
    finally:
        _is_listening[0] = False
    return {name.removeprefix(f"{folder}/") for name in _opened if name.startswith(str(folder))}


def test_a_copy_is_digested_once(artifact, tmp_path):
    assert "weights" not in opened_by_a_check(artifact)
    copy = shutil.copytree(artifact, tmp_path / "copy")
    sealed = (copy / MANIFEST_NAME).read_bytes()
    assert {"weights", "logs/events"} <= opened_by_a_check(copy)
    assert opened_by_a_check(copy) == {MANIFEST_NAME, VERIFIED_NAME}
    assert (copy / MANIFEST_NAME).read_bytes() == sealed
    other = shutil.copytree(copy, tmp_path / "other")
    assert {"weights", "logs/events"} <= opened_by_a_check(other), "stamps of another folder count for nothing"


def test_no_stamp_hides_damage(artifact, tmp_path):
    copy = shutil.copytree(artifact, tmp_path / "copy")
    check_files(copy, read_manifest(copy))
    weights = copy / "weights"
    times = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"2")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DamagedArtifactError, match="weights: expected sha256"):
        check_files(copy, read_manifest(copy))
    # One that says that the damaged bytes were verified is not asked by the whole check.
    status = weights.stat()
    stamps = json.loads((copy / VERIFIED_NAME).read_text())
    stamps["weights"] |= {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}
    (copy / VERIFIED_NAME).write_text(json.dumps(stamps))
    with pytest.raises(DamagedArtifactError, match="weights: expected sha256"):
        check_contents(copy, read_manifest(copy))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weights": 7}', "[" * 100_000, '{"weights": {"sha256": null}}'])
def test_damaged_stamps_count_for_nothing(artifact, tmp_path, content):
    copy = shutil.copytree(artifact, tmp_path / "copy")
    (copy / VERIFIED_NAME).write_text(content)
    assert {"weights", "logs/events"} <= opened_by_a_check(copy)
    (copy / "weights").write_bytes(b"12344")
    (copy / VERIFIED_NAME).write_text(content)
    with pytest.raises(DamagedArtifactError, match="weights: expected sha256"):
        check_files(copy, read_manifest(copy))


def test_a_touched_or_copied_artifact_is_whole(artifact, tmp_path):
    os.utime(artifact / "weights", (1, 1))
    check_files(artifact, read_manifest(artifact))
    copy = shutil.copytree(artifact, tmp_path / "copy")
    check_files(copy, read_manifest(copy))
    assert (copy / "weights").stat().st_ino != (artifact / "weights").stat().st_ino


def test_a_bit_that_rotted_in_place_is_found_by_the_whole_check_and_then_by_the_cheap_one(artifact):
    times = (artifact / "weights").stat()
    with (artifact / "weights").open("r+b") as file:
        file.write(b"2")
    os.utime(artifact / "weights", ns=(times.st_atime_ns, times.st_mtime_ns))
    # No program can set the second time back: the stamp is made to fit instead.
    stamps = json.loads((artifact / VERIFIED_NAME).read_text())
    stamps["weights"]["ctime_ns"] = (artifact / "weights").stat().st_ctime_ns
    (artifact / VERIFIED_NAME).write_text(json.dumps(stamps))
    check_files(artifact, read_manifest(artifact))
    with pytest.raises(DamagedArtifactError, match="weights: expected sha256"):
        check_contents(artifact, read_manifest(artifact))
    with pytest.raises(DamagedArtifactError, match="weights: expected sha256"):
        check_files(artifact, read_manifest(artifact))


def test_a_manifest_changed_by_other_hands_is_damaged(artifact):
    path = artifact / MANIFEST_NAME
    path.write_text(path.read_text().replace('"count": 5', '"count": 6'))
    with pytest.raises(DamagedArtifactError, match="seal"):
        read_manifest(artifact)


def test_an_error_on_the_way_leaves_nothing(tmp_path):
    final = tmp_path / "runs" / "a-1"

    def interrupted():
        with publishing(final) as temporary:
            (temporary / "half").write_bytes(b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(final.parent.iterdir()) == []


def test_publishing_again_replaces_the_whole_folder(artifact):
    with publishing(artifact) as temporary:
        (temporary / "only").write_bytes(b"9")
        write_manifest(temporary, stage="Train", identity={"x": 1}, details={})
    assert names_in(artifact) == {MANIFEST_NAME, "only"}
    assert [path.name for path in artifact.parent.iterdir()] == ["a-1"]


def test_publishing_in_place_keeps_other_files(tmp_path):
    final = tmp_path / "report"
    final.mkdir()
    (final / "notes.txt").write_text("mine")
    with publishing_in_place(final) as temporary:
        (temporary / "report.md").write_text("new")
        write_manifest(temporary, stage="Report", identity={}, details={})
    assert (final / "notes.txt").read_text() == "mine"
    check_files(final, read_manifest(final))


def test_an_unwritable_root_is_named_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    final = tmp_path / "file" / "runs" / "a"
    with pytest.raises(StorageError, match=r"file/runs.*\[Storage\] root"), publishing(final):
        pytest.fail("work began")


def refused_elsewhere():
    """A file that cannot be opened, but not one below the storage root."""
    try:
        Path(__file__, "x").read_bytes()
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


def test_a_full_disk_is_a_storage_error_where_the_artifact_goes_and_nowhere_else(tmp_path, disk):
    full = disk(1)

    def fill():
        with (full / "ballast").open("wb") as file:
            file.write(bytes(2_000_000))

    with pytest.raises(OSError, match="No space left") as raised, publishing(tmp_path / "runs" / "a"):
        fill()
    assert raised.value.filename is None, "what a write says has no path"
    with pytest.raises(StorageError, match="No space left"), publishing(full / "runs" / "a"):
        fill()


def test_any_error_on_a_full_disk_is_a_storage_error(disk):
    """Libraries that write by themselves do not always state the cause."""
    full = disk(1)
    (full / "ballast").write_bytes(bytes(900_000))
    with pytest.raises(StorageError, match="cannot be written"), publishing(full / "runs" / "a"):
        raise RuntimeError("a library gave up")


def test_an_artifact_with_unexpected_files_is_not_removed_and_they_are_named(tmp_path, caplog):
    folder = tmp_path / "run"
    with publishing(folder) as temporary:
        (temporary / "weights").write_text("w")
        write_manifest(temporary, stage="Train", identity={}, details={})
    note = folder / "my-note.txt"
    note.write_text("mine")
    assert not remove_artifact(folder)
    assert note.read_text() == "mine"
    assert (folder / "weights").exists()
    assert "not removed, because it contains unexpected files (my-note.txt). Move them" in caplog.text
    note.unlink()
    assert remove_artifact(folder)
    assert not folder.exists()
