"""Whatever hits it, nothing is lost and the next run puts it right: kills, damage, full disks, double starts.

Each kind has a short form that ``make test`` runs and a whole one for ``make test-faults``, which prints the counts.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from luigi_process import FAST, PROJECT, Luigi
from mutations import mutate
from publish_and_die import FILES, publish

from pipeline.artefacts.exchange import exchange
from pipeline.artefacts.manifest import MANIFEST_NAME, check_contents, check_files, read_manifest, sha256_of
from pipeline.artefacts.verified import VERIFIED_NAME
from pipeline.errors import DamagedArtefactError
from tasks.process import lock

DAMAGED, BUSY, STORAGE, TIME_LIMIT = 4, 5, 6, 8


def sizes(short: int, whole: int):
    return [pytest.param(short, id="short"), pytest.param(whole, id="whole", marks=pytest.mark.faults)]


def artefacts(root: Path) -> list[Path]:
    """Every published folder but the report, which is replaced file by file."""
    found = [path.parent for path in root.rglob(MANIFEST_NAME)]
    return [folder for folder in found if "/." not in str(folder.relative_to(root.parent)) and folder.name != "report"]


def assert_nothing_half(root: Path) -> None:
    for kind in ("source", "records", "runs"):
        for folder in root.glob(f"{kind}/[!.]*"):
            check_contents(folder, read_manifest(folder))
    for folder in root.glob("checkpoints/[!.]*/[!.]*"):
        check_contents(folder, read_manifest(folder))


def outcome(root: Path) -> dict[str, str]:
    """sha256 of everything that does not hold times: the records and the weights."""
    files = [*root.glob("records/*/*.tfrecord-*"), *root.glob("runs/*/weights.safetensors")]
    return {str(path.relative_to(root)): sha256_of(path) for path in files}


def is_fresh(luigi: Luigi, *args: str) -> bool:
    return all(entry["state"] == "fresh" for entry in luigi.status(*FAST, *args).values())


def kill_at(nth: int, scenario: str, root: Path, content: str) -> int | None:
    """Publish in a process that is killed before its n-th call; None, or the number of calls if it was not."""
    command = [sys.executable, Path(__file__).with_name("publish_and_die.py"), scenario, root, content, nth]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=PROJECT, check=False)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def can_exchange(folder: Path) -> bool:
    (folder / "one" / "here").mkdir(parents=True)
    (folder / "other").mkdir()
    return exchange(folder / "one", folder / "other") and (folder / "other" / "here").is_dir()


@pytest.mark.parametrize(
    ("scenario", "before"),
    [("publish", "nothing"), ("publish", "whole"), ("publish", "damaged"), ("without_exchange", "whole")],
)
def test_a_publish_killed_at_every_step_leaves_the_old_or_the_new(tmp_path, count, scenario, before):
    is_exchanged = scenario == "publish" and can_exchange(tmp_path)
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        final = root / "runs" / "a"
        if before != "nothing":
            publish("publish", root, "old")
            (final / "note.txt").write_text("mine")
        if before == "damaged":
            (final / "a").write_text("x")
        calls = kill_at(nth, scenario, root, "new")
        if is_exchanged and before != "nothing":
            assert (final / "note.txt").read_text() == "mine", "there is a moment with neither"
        if final.exists() and before != "damaged":
            check_contents(final, read_manifest(final))
        lock.clear_away(root)
        publish("publish", root, "new")
        check_contents(final, read_manifest(final))
        assert {name: (final / name).read_text() for name in FILES} == dict.fromkeys(FILES, "new" * 1000)
        if before != "nothing":
            assert (final / "note.txt").read_text() == "mine"
        assert [path.name for path in final.parent.iterdir()] == ["a"]
        if calls is not None:
            assert nth == calls + 1
            count["kills at a rename, fsync or unlink"] += calls
            return


def test_a_report_killed_at_every_step_keeps_a_whole_file_of_each_name(tmp_path, count):
    for nth in range(1, 1000):
        root = tmp_path / str(nth)
        publish("in_place", root, "old")
        calls = kill_at(nth, "in_place", root, "new")
        contents = {(root / "report" / name).read_text() for name in FILES[:2]}
        assert contents <= {"old" * 1000, "new" * 1000}
        with contextlib.suppress(DamagedArtefactError):
            check_files(root / "report", read_manifest(root / "report"), shared=True)
            assert len(contents) == 1, "a mixture passed for whole"
        lock.clear_away(root)
        publish("in_place", root, "new")
        assert sorted(path.name for path in root.rglob("*")) == ["a", "b", MANIFEST_NAME, "report"]
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
            drain.join(60)
            assert not drain.is_alive(), "a signal was not heard"
            killed += 1
            assert_nothing_half(luigi.root)
        assert process.returncode == 0
        assert outcome(luigi.root) == outcome(first_run.root)
        assert is_fresh(luigi)
        assert not list(luigi.root.glob("*/.*"))
        if killed >= kills:
            return killed
    raise AssertionError("never enough")


@pytest.mark.slow
@pytest.mark.parametrize("kills", sizes(1, 100))
def test_kills_at_random_moments_end_with_the_same_bytes(tmp_path, first_run, count, kills):
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


@pytest.fixture(scope="module")
def with_checkpoint(first_run, tmp_path_factory) -> tuple[Luigi, list[str]]:
    """A root on which all is done for FAST, and a longer training was killed; and that training's arguments."""
    luigi = first_run.copy(tmp_path_factory.mktemp("checkpoint"))
    arguments = [*FAST[2:], "--Train-epochs", "6"]
    process = luigi.start(*arguments)
    assert any("epoch 3/" in line for line in process.stderr), "training never began"
    process.kill()
    process.communicate()
    lock.clear_away(luigi.root)
    assert list(luigi.root.glob("checkpoints/*/epoch-*"))
    return luigi, arguments


def fault_found(folder: Path) -> str | None:
    """What the check that every run makes says of an artefact; None when it finds it whole."""
    try:
        check_files(folder, read_manifest(folder), shared=folder.name == "report")
    except DamagedArtefactError as error:
        return str(error)
    return None


@pytest.mark.parametrize("mutations", sizes(60, 300))
def test_a_mutated_file_is_named(with_checkpoint, tmp_path, count, mutations):
    luigi = with_checkpoint[0].copy(tmp_path)
    rng = random.Random(mutations)
    folders = [*artefacts(luigi.root), luigi.root / "report"]
    found = 0
    while found < mutations:
        folder = rng.choice(folders)
        files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
        path = rng.choice(sorted(path for path in files if path.name != VERIFIED_NAME))
        content, manifest = path.read_bytes(), read_manifest(folder)
        way = mutate(path, rng)
        fault = fault_found(folder)
        if fault is None:
            # A bit that turns é's escape from lower to upper case says the same.
            assert path.name == MANIFEST_NAME, f"{path}: {way} was not found"
            assert read_manifest(folder) == manifest, f"{path}: {way} was taken"
        else:
            assert str(path) in fault
            found += 1
        path.write_bytes(content)
        assert fault_found(folder) is None
    count["mutations found and named"] += found


@pytest.mark.faults
def test_the_next_run_repairs_every_mutated_artefact(with_checkpoint, tmp_path, count):
    original, arguments = with_checkpoint
    undisturbed = original.copy(tmp_path / "undisturbed")
    assert undisturbed(*arguments).returncode == 0
    rng = random.Random(0)
    for turn in range(6):
        luigi = original.copy(tmp_path / str(turn))
        for folder in [*artefacts(luigi.root), luigi.root / "report"]:
            path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
            way = rng.choice([mutate, lambda path, rng: path.unlink(), extra_file])
            way(path, rng)
            count["mutations repaired"] += 1
        # The damaged run of other settings is the first to be made again.
        for asked in (FAST, arguments):
            done = luigi(*asked)
            assert done.returncode == 0, done.stderr
        assert outcome(luigi.root) == outcome(undisturbed.root)
        assert is_fresh(luigi, *arguments)


def extra_file(path: Path, _: random.Random) -> None:
    shutil.copy(path, path.with_name("note.txt"))


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Take all the room on a file system but ``leave`` bytes."""
    ballast = folder / "ballast"
    free = shutil.disk_usage(folder).free - leave
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        for _ in range(free // 4096):
            file.write(bytes(4096))
    return ballast


@pytest.mark.slow
def test_an_8_mb_disk_is_refused_with_the_bytes_needed_and_free(first_run, disk, count):
    luigi = Luigi(disk(8), first_run.data_dir)
    done = luigi(*FAST)
    assert done.returncode == STORAGE
    assert re.search(rf"{luigi.root}/runs: needs 10.0 MB, \d\.\d MB are free", done.stderr)
    assert "Traceback" not in done.stderr
    assert_nothing_half(luigi.root)
    records = luigi.artefacts("records")
    assert len(records) == 1, "the records had room"
    for leave in (0, 40_000, 1_000_000):
        ballast = fill(luigi.root.parent, leave=leave)
        done = luigi(*FAST[:4], "--Records-train-shards", "2")
        assert done.returncode == STORAGE
        assert luigi.artefacts("records") == records
        assert_nothing_half(luigi.root)
        ballast.unlink()
        count["full or read-only disks"] += 1


@pytest.mark.faults
@pytest.mark.parametrize("line", ["writing cifar10", "training baseline_cnn", "epoch 1/", "Report: missing"])
def test_a_disk_that_fills_up_while_it_works(first_run, disk, count, line):
    luigi = Luigi(disk(40), first_run.data_dir)
    process = luigi.start(*FAST)
    said = []
    for text in process.stderr:
        said.append(text)
        if line in text:
            ballast = fill(luigi.root.parent)
            break
    _, rest = process.communicate(timeout=120)
    said = "".join([*said, rest])
    assert process.returncode == STORAGE, said
    assert "No space left on device" in said
    assert re.search(r"about [\d.]+ MB are needed, [\d.]+ MB are free", said)
    assert "Traceback" not in said
    assert_nothing_half(luigi.root)
    ballast.unlink()
    assert luigi(*FAST).returncode == 0
    assert outcome(luigi.root) == outcome(first_run.root)
    count["full or read-only disks"] += 1


@pytest.mark.slow
def test_a_read_only_root_is_refused_and_can_be_asked(first_run, disk, count):
    folder = disk(40)
    luigi = first_run.copy(folder / "x")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    assert is_fresh(luigi)
    assert luigi(*FAST).returncode == 0, "a run with nothing to do writes nothing"
    done = luigi(*FAST, "--Train-seed", "1")
    assert done.returncode == STORAGE
    assert f"{luigi.root}: cannot be written (Read-only file system)" in done.stderr
    count["full or read-only disks"] += 1


def test_an_unwritable_folder_is_refused(first_run, tmp_path, count):
    luigi = Luigi(tmp_path, first_run.data_dir)
    luigi.root.mkdir()
    (luigi.root / "source").write_text("a file where a folder should be")
    done = luigi(*FAST)
    assert done.returncode == STORAGE
    assert f"{luigi.root}/source: cannot be written" in done.stderr
    count["full or read-only disks"] += 1


@pytest.mark.slow
@pytest.mark.parametrize("starts", sizes(2, 20))
def test_of_two_started_at_once_one_does_the_work(first_run, tmp_path, count, starts):
    for turn in range(starts):
        luigi = first_run.copy(tmp_path / str(turn))
        on_busy = "wait" if turn % 2 else "leave"
        (luigi.root / "report" / "report.md").unlink()
        pair = [luigi.start(*FAST, "--Storage-on-busy", on_busy) for _ in range(2)]
        said = [process.communicate(timeout=120)[1] for process in pair]
        codes = [process.returncode for process in pair]
        assert sum(text.count("Report: done") for text in said) == 1
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
    assert "Train: stale" in first.stderr.readline()
    second = luigi(*FAST, "--Train-seed", "2", "--Storage-on-busy", "wait")
    assert first.wait(timeout=120) == 0
    first.communicate()
    assert second.returncode == 0, second.stderr
    assert "waiting" in second.stderr
    assert len(luigi.artefacts("runs")) == 3
    assert len(luigi.report()["runs"]) == 3
    count["double starts"] += 1


@pytest.mark.slow
def test_a_worker_that_outlives_its_run_keeps_the_next_one_out(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    arguments = [*FAST[2:], "--Train-epochs", "100000"]
    process = luigi.start(*arguments, "--workers", "2")
    assert any("epoch 1/" in line for line in process.stderr), "training never began"
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    try:
        assert [worker for worker in workers if worker.is_running()], "no worker trains on"
        (folder,) = luigi.root.glob("runs/.*.tmp")
        second = luigi(*FAST, "--Train-seed", "1")
        assert second.returncode == BUSY, second.stderr
        assert f"in use by a worker of process {process.pid} on" in second.stderr
        assert folder.is_dir(), "what the worker writes to was cleared away"
    finally:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        psutil.wait_procs(workers, timeout=60)
    process.communicate()
    # It takes the lock, as a run would.
    done = luigi.python("-m", "tasks.commands.clean_stale", "--dry-run", *FAST)
    assert done.returncode == 0, done.stderr
    assert not folder.exists()
    count["kills of a run whose worker trains on"] += 1


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
    drained.join(120)
    assert not drained.is_alive(), "it hangs"
    # It may have been done before the kill: then there is nothing to tell.
    if process.returncode != 0:
        assert process.returncode == 1
        assert "ERROR WorkerDiedError: a worker process of the Beam job died" in luigi.said
        assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert luigi(*FAST).returncode == 0
    assert outcome(luigi.root) == outcome(first_run.root)
    count["kills of a Beam worker"] += 1


@pytest.mark.faults
def test_a_stage_past_its_time_limit_is_stopped_in_order(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST[2:], "--Train-epochs", "100000", "--Train-time-limit-seconds", "10")
    assert done.returncode == TIME_LIMIT
    assert "[Train] time_limit_seconds" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(luigi.root.glob("*/.*.tmp"))
    assert_nothing_half(luigi.root)
    count["time limits"] += 1


DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); ctypes.CDLL(None).sleep(600)"
IGNORING = """
while True:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("hang", [DEAF, IGNORING], ids=["in C", "ignoring the exception"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_stage_that_hangs_past_its_limit_is_ended_by_force_with_the_limits_code(hang, log_format):
    code = (
        "import ctypes, signal, threading\n"
        "from tasks.process import console, interrupt\n"
        "interrupt.GRACE_SECONDS = 1\n"
        f"console.configure(); console.log_as({log_format!r})\n"
        f"with interrupt.time_limit('Train', 1):\n    exec({hang!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == TIME_LIMIT, done.stderr
    assert 'File \\"<string>\\"' in done.stderr or 'File "<string>"' in done.stderr, "where it hangs"
    last = done.stderr.splitlines()[-1]
    if log_format == "json":
        *_, last = map(json.loads, done.stderr.splitlines())
        assert (last["error"], last["exit_code"]) == ("TimeLimitError", TIME_LIMIT)
        assert "[Train] time_limit_seconds" in last["message"]
    else:
        assert "ERROR TimeLimitError: Train: not done after 1 s." in last


def test_a_limit_that_falls_into_a_string_of_code_ends_with_the_limits_code(tmp_path):
    """Such strings run while libraries are imported; Python remembers the KeyboardInterrupt that leaves one."""
    (tmp_path / "slow_import.py").write_text(
        "from pipeline.errors import TimeLimitError\n"
        "from tasks.process import interrupt\n"
        "interrupt.listen()\n"
        "try:\n"
        "    with interrupt.time_limit('Train', 1):\n        exec('while True: pass')\n"
        "except TimeLimitError as error:\n"
        "    raise SystemExit(error.exit_code)\n"
    )
    how = {"cwd": PROJECT, "env": {**os.environ, "PYTHONPATH": f"{PROJECT}:{tmp_path}"}, "check": False}
    assert subprocess.run([sys.executable, "-m", "slow_import"], **how).returncode == TIME_LIMIT


@pytest.mark.faults
def test_a_worker_that_hangs_past_its_limit_ends_the_run_with_the_limits_code(first_run, tmp_path):
    """Luigi forks the worker, and learns no more than that it died."""
    code = (
        "import sys, threading, luigi.retcodes, tasks\n"
        "from tasks.process import interrupt\n"
        "interrupt.GRACE_SECONDS = 1\n"
        f"def hang(self, folder):\n    exec({IGNORING!r}, globals())\n"
        "tasks.Report.make = hang\n"
        "luigi.retcodes.run_with_retcodes(sys.argv[1:])\n"
    )
    report = ["--module", "tasks", "Report", *FAST, "--workers", "2", "--Force-stage", "Report"]
    done = first_run.copy(tmp_path).python("-c", code, *report, "--Report-time-limit-seconds", "1")
    assert done.returncode == TIME_LIMIT, done.stderr
