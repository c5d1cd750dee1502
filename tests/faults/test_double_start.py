"""Double starts: of several runs on one storage root one works, and the others leave or wait.

Tests with ``sizes`` have a short form for ``make test`` or ``make test-slow``, and a full one for ``make test-faults``.
"""

import contextlib

import psutil
import pytest
from fault_checks import BUSY, is_fresh, sizes
from luigi_process import FAST, TINY


@pytest.mark.slow
@pytest.mark.parametrize("starts", sizes(2, 20))
def test_of_two_started_at_once_one_does_the_work(first_run, tmp_path, count, starts):
    for turn in range(starts):
        luigi = first_run.copy(tmp_path / str(turn))
        on_busy = "wait" if turn % 2 else "leave"
        (luigi.root / "report" / "report.md").unlink()
        pair = [luigi.start(*FAST, "--Storage-on-busy", on_busy) for _ in range(2)]
        said = [process.communicate(timeout=300)[1] for process in pair]
        codes = [process.returncode for process in pair]
        assert sum(text.count("Report: finished") for text in said) == 1
        assert set(codes) <= ({0} if on_busy == "wait" else {0, BUSY}), said
        if BUSY in codes:
            worker = pair[1 - codes.index(BUSY)]
            assert f"in use by process {worker.pid} on" in said[codes.index(BUSY)]
        assert is_fresh(luigi)
        count["double starts"] += 1


@pytest.mark.faults
def test_one_that_waits_for_another_with_other_settings_then_does_its_own_work(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    first = luigi.start(*FAST, "--Train-seed", "1")
    # Once it says so it holds the lock.
    assert "Train: building" in first.stderr.readline()
    second = luigi(*FAST, "--Train-seed", "2", "--Storage-on-busy", "wait")
    assert first.wait(timeout=300) == 0
    first.communicate()
    assert second.returncode == 0, second.stderr
    assert "Waiting" in second.stderr
    assert len(luigi.artifacts("runs")) == 3
    assert len(luigi.report()["runs"]) == 3
    count["double starts"] += 1


@pytest.mark.slow
def test_a_worker_that_outlives_its_run_keeps_the_next_one_out(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    process = luigi.start(*FAST, *TINY, "--Train-epochs", "100000", "--workers", "2")
    assert any("Epoch 1/" in line for line in process.stderr), "training never began"
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    try:
        assert [worker for worker in workers if worker.is_running()], "no worker trains on"
        (folder,) = luigi.root.glob("runs/.*.tmp")
        second = luigi(*FAST, "--Train-seed", "1")
        assert second.returncode == BUSY, second.stderr
        assert f"in use by process {process.pid} on" in second.stderr
        assert folder.is_dir(), "what the worker writes to was cleared away"
    finally:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        psutil.wait_procs(workers, timeout=300)
    process.communicate()
    # It takes the lock, as a run would.
    done = luigi.python("-m", "tasks", "clean-stale", *FAST)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    count["kills of a run whose worker trains on"] += 1
