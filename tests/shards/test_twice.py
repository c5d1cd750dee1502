"""Work that an engine runs twice, at one time or after a failure, comes out as if it had run once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from image_files import write_folder
from tfrecord import shard_bytes

from pipeline.artifacts.publish import replacing


def setup_module() -> None:
    global job
    from pipeline.shards import job


def four_times(work: Callable, seen: Path) -> Callable:
    """Twice at one time, and so once more."""

    def run(element, job):
        # A file: Beam ships a copy of all else.
        with seen.open("a") as file:
            file.write(f"{work.__name__}\n")
        with ThreadPoolExecutor(2) as threads:
            results = [*threads.map(lambda _: work(element, job), range(4))]
        assert results == results[:1] * 4
        return results[0]

    return run


@pytest.fixture
def run_again(monkeypatch, tmp_path) -> Callable[[], Path]:
    """A function after which blocks and shards are written four times; it returns the file that says which were."""

    def again() -> Path:
        for name in ("write_block", "write_shard"):
            monkeypatch.setattr(job, name, four_times(getattr(job, name), tmp_path / "seen"))
        return tmp_path / "seen"

    return again


def test_blocks_of_one_length_that_run_again_change_nothing(small_records, write_small_records, run_again):
    seen = run_again()
    assert shard_bytes(write_small_records()) == shard_bytes(small_records)
    assert set(seen.read_text().split()) == {"write_block"}


def test_blocks_and_shards_of_any_length_that_run_again_change_nothing(tmp_path, write_records_of, run_again):
    folder = write_folder(tmp_path / "photos", cats=12, dogs=12)
    once = write_records_of(folder, encoding="png")
    seen = run_again()
    again = write_records_of(folder, encoding="png")
    assert set(seen.read_text().split()) == {"write_block", "write_shard"}
    assert len(shard_bytes(once.folder)) == 3
    assert shard_bytes(again.folder) == shard_bytes(once.folder)
    assert again.manifest["splits"] == once.manifest["splits"]
    assert not [path for path in again.folder.iterdir() if path.name.startswith(".")]


def test_a_writer_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write()
    assert path.read_text() == "before"
