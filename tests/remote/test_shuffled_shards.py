"""Records by workers that share nothing but the remote: the same bytes, whatever is lost or comes twice."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import write_folder
from moto_server import Store as Server

from pipeline import sources
from pipeline.config.data import RecordsSettings, SourceSettings
from pipeline.errors import PipelineError, RemoteError
from pipeline.remote.garbage import remove_garbage
from pipeline.shards.shared import EXCHANGE, Store, shared_by_workers
from pipeline.sources import Location, SourceInfo


def setup_module() -> None:
    global Job, presence, shuffled, write_records
    from pipeline.shards import presence, shuffled
    from pipeline.shards.job import write_records
    from pipeline.shards.plan import Job


FILES = "records/" + "0" * 64 + "/files"


def shard_bytes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tfrecord-*")}


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
    written = shuffled.write_shard
    monkeypatch.setattr(shuffled, "write_shard", lambda *given: max(written(*given) for _ in range(2)))
    found, _ = write(few_examples, through)
    assert found == expected[0]
    assert len(keys(remote, "records")) == len(found)


@pytest.mark.parametrize("what", ["lost", "twice"])
def test_a_part_that_the_runner_loses_or_brings_twice_ends_the_job(few_examples, through, write, monkeypatch, what):
    parts = shuffled.parts

    def wrong(block: tuple[str, int], job) -> Iterator:
        first, *rest = parts(block, job)
        if what == "twice":
            yield first
        # All of a shard would be missed otherwise.
        if what == "twice" or block[1]:
            yield first
        yield from rest

    monkeypatch.setattr(shuffled, "parts", wrong)
    with pytest.raises(Exception, match=r"expected \d+ records, each once, the runner brought \d+"):
        write(few_examples, through)


def test_a_shard_that_the_runner_loses_ends_the_job(few_examples, through, write, remote, monkeypatch):
    written = shuffled.write_shard
    monkeypatch.setattr(shuffled, "write_shard", lambda pair, job: pair[0][1] or written(pair, job))
    with pytest.raises(RuntimeError, match="Beam ended the job without the shard synthetic-train"):
        write(few_examples, through)
    assert keys(remote, EXCHANGE) == []


def test_what_is_received_is_what_the_workers_wrote(few_examples, expected, through, write, remote, monkeypatch):
    """Whoever can write to the store can put other bytes there."""
    written = shuffled.write_shard

    def overwritten(pair, job) -> str:
        name = written(pair, job)
        digest = json.loads(job.shared.read(f"{shuffled.NOTES}/{name}.json"))["sha256"]
        size = job.shared.objects.find(f"{FILES}/{digest}").num_bytes
        job.shared.objects.put(f"{FILES}/{digest}", b"x" * size)
        return name

    monkeypatch.setattr(shuffled, "write_shard", overwritten)
    with pytest.raises(PipelineError, match="expected sha256"):
        write(few_examples, through)
    # Written again it is mended.
    monkeypatch.setattr(shuffled, "write_shard", written)
    assert write(few_examples, through) == expected


def test_a_part_of_a_shard_is_small_however_large_the_block(small_source, through, tmp_path, monkeypatch):
    """So that a worker holds some batches of a block, or one shard."""
    monkeypatch.setattr(shuffled, "_PENDING_BYTES", 100_000)
    settings = RecordsSettings(train_shards=3, test_shards=2)
    source = replace(small_source, num_examples={"train": 2_000, "test": 101})
    shared = shared_by_workers(tmp_path, through)
    job = Job(source, Location(), settings, str(tmp_path), shared, 10_000, source.num_examples)
    presence.expect(job.shared)
    job.leave_places()
    sizes = [len(joined) for _, (_, _, joined) in shuffled.parts(("train", 0), job)]
    assert sum(sizes) > 2_000 * 3_072
    # Of four batches each of 500, among three shards.
    assert len(sizes) == 4 * 3
    assert max(sizes) < sum(sizes) / 8


def test_shards_without_a_record_are_there_and_empty(few_examples, through, write):
    fewer = replace(few_examples, num_examples={"train": 12, "test": 2})
    found, _ = write(fewer, through, test_shards=4)
    assert found == write(fewer, test_shards=4)[0]
    assert hashlib.sha256().hexdigest() in found.values()


@pytest.mark.parametrize(
    "note", ['{"sha256": "../../etc/passwd", "bytes": 1}', '{"sha256": 3}', "[]", '"', "x" * 9_000]
)
def test_a_note_that_no_worker_of_ours_wrote_is_refused(through, tmp_path, note):
    shared = shared_by_workers(tmp_path, through)
    shared.write(f"{shuffled.NOTES}/shard.json", note.encode())
    with pytest.raises(PipelineError, match=r"expected (sha256 and bytes of a shard|at most 4,096 bytes)"):
        shuffled.noted(SimpleNamespace(shared=shared), "shard")


def test_a_store_that_does_not_answer_is_named(few_examples, through, write):
    gone = replace(through, endpoint="http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"s3://.*exchange"):
        write(few_examples, gone)


def test_what_a_job_that_was_killed_left_is_garbage(remote, overwrite):
    for name in ("expected.json", "blocks/train-000000000000.json"):
        overwrite(f"{EXCHANGE}/{'a' * 32}/{name}", b"{}")
    assert [*remove_garbage(remote)] == []
    removed = [stored.key for stored in remove_garbage(remote, grace=timedelta(seconds=-5))]
    assert len([key for key in removed if key.startswith(EXCHANGE)]) == 2
    assert keys(remote, EXCHANGE) == []


@settings(max_examples=50)
@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 19), max_size=4),
    seed=st.integers(0, 1_000),
)
def test_parts_in_any_order_and_of_any_size_are_joined_by_their_places(lengths, cuts, seed):
    random = np.random.default_rng(seed)
    records = [random.bytes(length) for length in lengths]
    order = random.permutation(len(records))
    edges = [0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]
    groups = [order[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]
    given_parts = [
        (
            group.astype("<i8").tobytes(),
            np.array([lengths[at] for at in group], "<i8").tobytes(),
            b"".join(records[at] for at in group),
        )
        for group in groups
    ]
    assert shuffled._joined(given_parts, len(records), "shard") == b"".join(records)
