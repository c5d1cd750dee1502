"""Records on real engines: whoever writes them, on however many workers, whatever dies on the way, the same bytes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import clusters
import moto_server
import numpy as np
import pytest
from PIL import Image
from tfrecord import shard_bytes

from pipeline import sources
from pipeline.errors import EngineUnavailableError
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.shards.shared import Store
from pipeline.sources import Location, SourceInfo


def setup_module() -> None:
    global try_engine, write_records
    from pipeline.shards.engine import try_engine
    from pipeline.shards.job import write_records


pytestmark = pytest.mark.engine

# Of a block of 10 examples of the stand-in: long enough for a worker to be killed on the way.
KILLED_AFTER = 5


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> tuple[SourceInfo, Location]:
    """60 JPEGs of two labels, no two of one size: records of any length."""
    folder, listing = tmp_path_factory.mktemp("photographs"), tmp_path_factory.mktemp("listing")
    rng = np.random.default_rng(0)
    for number in range(60):
        label = folder / ("night", "day")[number % 2]
        label.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (100 + number, 160 - number, 3), np.uint8)
        Image.fromarray(pixels).save(label / f"{number}.jpg", quality=70)
    info = sources.resolve(SourceSettings(dataset="folder", path=str(folder)), listing)
    return info, Location(folder=str(folder), listing=str(listing / "examples.json"))


@pytest.fixture
def kinds(small_source, photographs) -> dict[str, tuple[SourceInfo, Location]]:
    return {"fixed": (small_source, Location()), "any_length": photographs}


@pytest.fixture
def write(tmp_path) -> Callable[..., dict]:
    """A function that writes records of a source and returns the shards' sha256 and what the manifest would say."""

    def written(
        source: SourceInfo,
        location: Location,
        *,
        name: str,
        block_examples: int,
        store: Store | None = None,
        **settings,
    ) -> dict:
        folder, notes = tmp_path / name / "records", tmp_path / name / "notes"
        folder.mkdir(parents=True)
        notes.mkdir()
        size = {"image_size": 96} if location.listing else {}
        asked = RecordsSettings(**{"train_shards": 3, "test_shards": 2, **size, **settings})
        how = {"location": location, "block_examples": block_examples, "store": store}
        details = write_records(source, asked, folder, notes, **how)
        return {"shards": shard_bytes(folder), "details": details}

    return written


@pytest.fixture(params=clusters.ENGINES)
def engine(request) -> str:
    return request.param


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_an_engine_with_any_number_of_workers_writes_the_same_bytes(engine, workers, kinds, write, tmp_path):
    if engine == "prism" and workers > 1:
        pytest.xfail("Prism has no number of workers")
    with clusters.running(engine, tmp_path, workers) as cluster:
        if engine in ("flink", "spark", "dask"):
            met = try_engine(RecordsSettings(runner=cluster.runner, runner_options=cluster.options), tmp_path)
            assert "on 1 host can access the storage root" in met
        for kind, (source, location) in kinds.items():
            expected = write(source, location, name=f"{kind}-expected", block_examples=25)
            found = write(
                source,
                location,
                name=f"{kind}-found",
                block_examples=25,
                runner=cluster.runner,
                runner_options=cluster.options,
            )
            assert found["shards"] == expected["shards"]
            ran = found["details"].pop("engine")
            assert expected["details"].pop("engine") == {"runner": "FnApiRunner", "hosts": 1, "processes": 1}
            assert found["details"] == expected["details"]
            assert ran["runner"] == cluster.runner
            assert ran["processes"] >= 1
            # Spark has workers of its own for each stage.
            if engine != "spark":
                assert ran["processes"] <= workers


@pytest.mark.parametrize("engine", ["flink", "spark", "dask"])
def test_workers_that_see_no_file_of_the_root_write_the_same_bytes_through_a_store(
    engine, small_source, write, tmp_path, monkeypatch
):
    expected = write(small_source, Location(), name="expected", block_examples=25)
    for name, value in moto_server.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server, hidden = moto_server.Store(), tmp_path / "found"
    hidden.mkdir()
    (tmp_path / "cluster").mkdir()
    try:
        store = Store(server.bucket(), server.endpoint, "records/test/files")
        with clusters.running(engine, tmp_path / "cluster", 2, hiding=hidden) as cluster:
            how = {"runner": cluster.runner, "runner_options": cluster.options}
            settings = RecordsSettings(train_shards=3, test_shards=2, **how)
            assert "can access the remote" in try_engine(settings, hidden, store)
            with pytest.raises(EngineUnavailableError, match=r"set \[Records\] workers_share = remote"):
                try_engine(settings, hidden)
            found = write(small_source, Location(), name="found", block_examples=25, store=store, **how)
    finally:
        server.stop()
    assert found["shards"] == expected["shards"]
    found["details"].pop("engine"), expected["details"].pop("engine")
    assert found["details"] == expected["details"]


@contextlib.contextmanager
def killing(cluster: clusters.Cluster, notes: Path, seen: list) -> Iterator[None]:
    """Kill a process that writes blocks once some are written and others are not."""
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.005):
            written = len(list(notes.glob("blocks/train-*"))) if notes.is_dir() else 0
            if written < KILLED_AFTER:
                continue
            worker = cluster.python_workers()[-1]
            seen.append((written, worker.pid))
            worker.kill()
            return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        done.set()
        killer.join()


@pytest.mark.parametrize("engine", ["flink", "spark", "dask"])
def test_a_worker_that_is_killed_on_the_way_doubles_and_loses_nothing(engine, small_source, write, tmp_path):
    expected = write(small_source, Location(), name="expected", block_examples=4)
    blocks, seen = 403 // 4 + 1, []
    with (
        clusters.running(engine, tmp_path, 2) as cluster,
        killing(cluster, tmp_path / "found" / "notes", seen),
    ):
        found = write(
            small_source,
            Location(),
            name="found",
            block_examples=4,
            runner=cluster.runner,
            runner_options=cluster.options,
        )
    ((written, _),) = seen
    assert written < blocks
    assert found["shards"] == expected["shards"]
    found["details"].pop("engine"), expected["details"].pop("engine")
    assert found["details"] == expected["details"]


@pytest.mark.parametrize("engine", ["flink", "spark"])
def test_an_interrupt_cancels_the_job_on_the_cluster(engine, tmp_path):
    root = tmp_path / "root"
    with clusters.running(engine, tmp_path, 1) as cluster:
        settings = ("--Storage-root", root, "--Source-origin", "placeholder", "--Records-runner", cluster.runner)
        command = [sys.executable, "-m", "tasks", "Records", *settings, f"--Records-runner-options={cluster.options}"]
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        cluster.wait_for(lambda: "RUNNING" in cluster.jobs().values())
        cluster.wait_for(lambda: cluster.python_workers() != [])
        # As a terminal does: Beam's job server hears it too.
        os.killpg(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=300)
        assert run.returncode == -signal.SIGINT, said
        assert "Traceback" not in said
        cluster.wait_for(lambda: not {"RUNNING", "CANCELLING"} & {*cluster.jobs().values()})
        expected = {"flink": {"CANCELED"}, "spark": {"FINISHED", "KILLED"}}
        assert {*cluster.jobs().values()} <= expected[engine]
    # Nothing unfinished is left.
    assert [path.name for path in (root / "records").iterdir()] == []
