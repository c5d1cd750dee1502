"""Records by workers that share nothing but the remote: the same bytes, whatever is lost or comes twice."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from image_files import write_folder
from moto_server import Store as Server
from tfrecord import shard_bytes

from pipeline import sources
from pipeline.errors import EngineUnavailableError, PipelineError, RemoteError
from pipeline.remote.artifacts import unreferenced_objects
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.shared import EXCHANGE, Store, shared_by_workers
from pipeline.sources import Location, SourceInfo


def setup_module() -> None:
    global StoreWriter, job, write_records, writers
    from pipeline.shards import job, writers
    from pipeline.shards.job import write_records
    from pipeline.shards.writers import StoreWriter


FILES = "records/" + "0" * 64 + "/files"


@pytest.fixture(scope="module")
def few_examples(small_source) -> SourceInfo:
    """Three blocks of train and one of test: sizes that no number of shards divides evenly."""
    return replace(small_source, num_examples={"train": 50, "test": 11})


@pytest.fixture
def through(store: Server, url: str) -> Store:
    return Store(url, store.endpoint, FILES)


@pytest.fixture(scope="module")
def write(tmp_path_factory) -> Callable[..., tuple[dict, dict]]:
    """A function that writes records and returns the shards' sha256 and what the manifest would say."""

    def written(
        source: SourceInfo, store: Store | None = None, location: Location | None = None, **settings
    ) -> tuple[dict, dict]:
        top = tmp_path_factory.mktemp("shuffled")
        folder, notes = top / "records", top / "notes"
        for path in (folder, notes):
            path.mkdir()
        asked = RecordsSettings(**{"train_shards": 3, "test_shards": 2, **settings})
        how = {"location": location, "block_examples": 20, "store": store}
        details = write_records(source, asked, folder, notes, **how)
        assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
        return shard_bytes(folder), details

    return written


@pytest.fixture(scope="module")
def expected(few_examples, write) -> tuple[dict, dict]:
    """The same of ``few_examples`` where workers share a folder."""
    return write(few_examples)


@pytest.fixture
def photographs(tmp_path) -> tuple[SourceInfo, Location]:
    folder, listing = write_folder(tmp_path / "photos", cats=12, dogs=12), tmp_path / "listing"
    listing.mkdir()
    info = sources.resolve(SourceSettings(dataset="folder", path=str(folder)), listing)
    return info, Location(folder=str(folder), listing=str(listing / "examples.json"))


def keys(remote, prefix: str) -> list[str]:
    return sorted(stored.key for stored in remote.objects.list(prefix))


def test_records_of_one_length_come_out_the_same_and_nothing_is_left_but_the_shards(
    few_examples, expected, through, write, remote
):
    found = write(few_examples, through)
    assert found == expected
    assert keys(remote, EXCHANGE) == []
    assert keys(remote, "records") == sorted(f"{FILES}/{digest}" for digest in found[0].values())


def test_records_of_any_length_come_out_the_same(photographs, through, write):
    source, location = photographs
    how = {"location": location, "image_size": 80, "encoding": "png", "validation_share": 0.2}
    assert write(source, through, **how) == write(source, **how)


def test_a_shard_that_is_written_twice_is_one_object(few_examples, expected, through, write, remote, monkeypatch):
    written = StoreWriter.write_shard
    monkeypatch.setattr(StoreWriter, "write_shard", lambda *given: max(written(*given) for _ in range(2)))
    found, _ = write(few_examples, through)
    assert found == expected[0]
    assert len(keys(remote, "records")) == len(found)


def test_a_block_that_the_runner_loses_ends_the_job(few_examples, through, write, remote, monkeypatch):
    monkeypatch.setattr(job, "write_block", lambda block, job: ("train", 0, 20))
    lost = r"without the blocks \[\('test', 0, 11\), \('train', 20, 40\), \('train', 40, 50\)\]"
    with pytest.raises(EngineUnavailableError, match=f"Beam finished the job {lost}"):
        write(few_examples, through)
    assert keys(remote, EXCHANGE) == []


def test_a_shard_that_the_runner_loses_ends_the_job(few_examples, through, write, remote, monkeypatch):
    written = StoreWriter.write_shard
    monkeypatch.setattr(StoreWriter, "write_shard", lambda self, which: "lost" if which[1] else written(self, which))
    with pytest.raises(EngineUnavailableError, match="Beam finished the job without the shard synthetic-train"):
        write(few_examples, through)
    assert keys(remote, EXCHANGE) == []


def test_received_shards_equal_the_written_shards(few_examples, expected, through, write, remote, monkeypatch):
    """Whoever can write to the store can put other bytes there."""
    written = StoreWriter.write_shard

    def overwritten(self, which) -> str:
        name, shared = written(self, which), self.job.shared
        digest, size = writers.read_shard_entry(shared, name)
        shared.store.objects.put(f"{FILES}/{digest}", b"x" * size)
        return name

    monkeypatch.setattr(StoreWriter, "write_shard", overwritten)
    with pytest.raises(PipelineError, match="expected sha256"):
        write(few_examples, through)
    # Written again it is mended.
    monkeypatch.setattr(StoreWriter, "write_shard", written)
    assert write(few_examples, through) == expected


def test_shards_without_a_record_are_there_and_empty(few_examples, through, write):
    fewer = replace(few_examples, num_examples={"train": 12, "test": 2})
    found, _ = write(fewer, through, test_shards=4)
    assert found == write(fewer, test_shards=4)[0]
    assert hashlib.sha256().hexdigest() in found.values()


@pytest.mark.parametrize("note", ["../../etc/passwd 1", "0" * 64, f"{'0' * 64} -1", "", "x" * 9_000])
def test_a_note_that_no_worker_of_ours_wrote_is_refused(through, tmp_path, note):
    with shared_by_workers(tmp_path, through) as shared:
        shared.write(f"{writers.SHARD_ENTRIES}/shard", note.encode())
        with pytest.raises(PipelineError, match="another process changed this entry"):
            writers.read_shard_entry(shared, "shard")


def test_a_store_that_does_not_answer_is_named(few_examples, through, write):
    gone = replace(through, endpoint="http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"s3://.*exchange"):
        write(few_examples, gone)


def test_leftovers_of_a_killed_job_are_garbage(remote, overwrite):
    for name in ("expected.json", "blocks/train-000000000000.json"):
        overwrite(f"{EXCHANGE}/{'a' * 32}/{name}", b"{}")
    assert [*unreferenced_objects(remote)] == []
    removed = [stored.key for stored in unreferenced_objects(remote, is_removing=True, grace=timedelta(seconds=-5))]
    assert len([key for key in removed if key.startswith(EXCHANGE)]) == 2
    assert keys(remote, EXCHANGE) == []
