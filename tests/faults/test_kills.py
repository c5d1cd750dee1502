"""Kills: nothing is lost, and the next run puts it right, at whatever moment the process or a worker dies.

Tests with ``sizes`` have a short form for ``make test`` or ``make test-slow``, and a full one for ``make test-faults``.
"""

import contextlib
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import warm
from fault_checks import assert_nothing_partial, is_fresh, outcome, sizes
from luigi_process import FAST, PROJECT, Luigi
from publish_and_die import FILES, publish

from pipeline.artifacts.manifest import MANIFEST_NAME, check_contents, check_files, read_manifest
from pipeline.artifacts.stamps import VERIFIED_NAME
from pipeline.errors import DamagedArtifactError
from tasks.process import lock


def kill_at(nth: int, scenario: str, root: Path, content: str) -> int | None:
    """Publish in a process that is killed before its n-th call; None, or the number of calls if it was not."""
    command = [sys.executable, "-m", "publish_and_die", scenario, str(root), content, str(nth)]
    done = warm.run(command, cwd=PROJECT / "tests", timeout=300)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def notes(folder: Path) -> list[str]:
    """Contents of the user's notes in an artifact's folder and in those that were kept."""
    return [path.read_text() for path in folder.parent.glob(f"{folder.name}*/note.txt")]


@pytest.mark.parametrize(
    ("before", "has_note"),
    [("nothing", False), ("valid", False), ("valid", True), ("damaged", False), ("damaged", True)],
)
def test_a_publish_killed_at_every_step_leaves_the_old_or_the_new(tmp_path, count, before, has_note):
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        final = root / "runs" / "a"
        if before != "nothing":
            publish("publish", root, "old")
        if has_note:
            (final / "note.txt").write_text("mine")
        if before == "damaged":
            (final / "a").write_text("x")
        calls = kill_at(nth, "publish", root, "new")
        if final.exists() and before != "damaged":
            check_contents(final, read_manifest(final))
        lock.clear_away(root)
        assert before == "nothing" or final.exists(), "an artifact that was set aside is put back"
        publish("publish", root, "new")
        check_contents(final, read_manifest(final))
        assert {name: (final / name).read_text() for name in FILES} == dict.fromkeys(FILES, "new" * 1000)
        assert notes(final) == ["mine"] * has_note
        others = [path.name for path in final.parent.iterdir() if path != final]
        assert len(others) == has_note, others
        if calls is not None:
            assert nth == calls + 1
            count["kills at a rename, fsync or unlink"] += calls
            return


def test_a_report_killed_at_every_step_keeps_a_valid_file_of_each_name(tmp_path, count):
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        publish("in_place", root, "old")
        calls = kill_at(nth, "in_place", root, "new")
        contents = {(root / "report" / name).read_text() for name in FILES[:2]}
        assert contents <= {"old" * 1000, "new" * 1000}
        with contextlib.suppress(DamagedArtifactError):
            check_files(root / "report", read_manifest(root / "report"))
            assert len(contents) == 1, "a mixture passed for valid"
        lock.clear_away(root)
        publish("in_place", root, "new")
        assert sorted(path.name for path in root.rglob("*")) == ["a", "b", MANIFEST_NAME, "report", VERIFIED_NAME]
        if calls is not None:
            count["kills at a rename, fsync or unlink"] += calls
            return


@pytest.mark.faults
def test_a_checkpoint_killed_at_every_step_loses_no_finished_epoch(tmp_path, count):
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        publish("checkpoint", root, "1")
        calls = kill_at(nth, "checkpoint", root, "2")
        epochs = []
        for folder in root.glob("checkpoints/run/[!.]*"):
            check_contents(folder, read_manifest(folder))
            epochs.append(folder.name)
        assert epochs, "both checkpoints are gone"
        lock.clear_away(root)
        publish("checkpoint", root, "3")
        assert [path.name for path in root.glob("checkpoints/run/*")] == ["epoch-000003"]
        if calls is not None:
            count["kills at a rename, fsync or unlink"] += calls
            return


def chain_of_kills(folder: Path, first_run: Luigi, kills: int, rng: random.Random) -> int:
    """Start and kill runs on empty roots until there were so many kills; each root ends as an undisturbed one."""
    killed = 0
    for turn in range(1000):
        luigi = Luigi(folder / str(turn), first_run.data_dir)
        while True:
            # Luigi, and what it makes of an output nobody reads, must not wait for us.
            process = luigi.start(*FAST)
            drain = threading.Thread(target=process.communicate)
            drain.start()
            drain.join(rng.uniform(0.2, 10) if killed < kills else 300)
            if not drain.is_alive():
                break
            process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            drain.join(300)
            assert not drain.is_alive(), "a signal was ignored"
            killed += 1
            assert_nothing_partial(luigi.root)
        assert process.returncode == 0
        assert outcome(luigi.root) == outcome(first_run.root)
        assert is_fresh(luigi)
        assert not list(luigi.root.glob("*/.*"))
        if killed >= kills:
            return killed
    raise AssertionError("never enough")


@pytest.mark.slow
@pytest.mark.parametrize("kills", sizes(1, None))
def test_kills_at_random_moments_end_with_the_same_bytes(tmp_path, first_run, count, pytestconfig, kills):
    kills = kills or pytestconfig.getoption("--kills")
    chains = min(kills, 2)
    with ThreadPoolExecutor(chains) as pool:
        turns = [
            pool.submit(chain_of_kills, tmp_path / str(chain), first_run, kills // chains, random.Random(chain))
            for chain in range(chains)
            if not (tmp_path / str(chain)).mkdir()
        ]
        killed = sum(turn.result() for turn in turns)
    # What each kill and each end must leave is asserted in the chain.
    assert killed >= kills
    count["kills at random moments"] += killed


def is_beam_worker(process: psutil.Process) -> bool:
    """Not the shell that starts one, nor another child that the pipeline has for a moment."""
    try:
        return process.name().startswith("python") and "apache_beam.runners.worker" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


@pytest.mark.faults
@pytest.mark.parametrize(("delay", "hung"), [(0.0, False), (0.0, True), (0.7, False), (2.0, False)])
def test_a_beam_worker_that_dies_ends_the_job(first_run, tmp_path, count, delay, hung):
    luigi = Luigi(tmp_path, first_run.data_dir)
    options = "--Records-runner-options=--direct_running_mode=multi_processing --direct_num_workers=2"
    process = luigi.start(*FAST, options)
    drained = threading.Thread(target=lambda: luigi.__dict__.update(said=process.communicate()[1]))
    drained.start()
    workers: list[psutil.Process] = []
    while len(workers) < 2 and drained.is_alive():
        workers = [child for child in psutil.Process(process.pid).children(recursive=True) if is_beam_worker(child)]
        time.sleep(0.05)
    time.sleep(delay)
    if hung:
        # As one that has not connected yet when the other dies: Beam waits for it on its way out.
        workers[1].suspend()
    with contextlib.suppress(psutil.NoSuchProcess):
        workers[0].kill()
    drained.join(300)
    assert not drained.is_alive(), "it hangs"
    # It may have been done before the kill: then there is nothing to report.
    if process.returncode != 0:
        assert process.returncode == 1
        assert "ERROR WorkerDiedError: A worker process of the Beam job died" in luigi.said
        assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert luigi(*FAST).returncode == 0
    assert outcome(luigi.root) == outcome(first_run.root)
    count["kills of a Beam worker"] += 1
