"""Disks too small, full, or read-only: a run leaves and says what it needed and what is free.

Nothing partial stays, and once there is space the next run ends as an undisturbed one.
"""

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fault_checks import STORAGE, assert_nothing_partial, is_fresh, outcome
from luigi_process import FAST, Luigi

# A checkpoint of its weights and of the state of RMSprop takes 16 MB.
WIDE = ["--Train-model", "tests.tiny_model:build_wide", "--Train-training-recipe", "baseline"]


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Take all the space on a file system but ``leave`` bytes."""
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
    assert re.search(rf"{luigi.root}/runs: 10.0 MB are needed, but only \d\.\d MB are free", done.stderr)
    assert "Traceback" not in done.stderr
    assert_nothing_partial(luigi.root)
    records = luigi.artifacts("records")
    assert len(records) == 1, "the records had space"
    for leave in (0, 40_000, 1_000_000):
        ballast = fill(luigi.root.parent, leave=leave)
        done = luigi(*FAST[:4], "--Records-train-shards", "2")
        assert done.returncode == STORAGE
        assert luigi.artifacts("records") == records
        assert_nothing_partial(luigi.root)
        ballast.unlink()
        count["full or read-only disks"] += 1


@pytest.mark.slow
def test_a_network_whose_checkpoints_do_not_fit_is_not_begun(first_run, disk):
    luigi = Luigi(disk(25), first_run.data_dir)
    done = luigi(*FAST, *WIDE)
    assert done.returncode == STORAGE, done.stderr
    assert re.search(rf"{luigi.root}/runs: 31\.\d MB are needed, but only \d+\.\d MB are free", done.stderr)
    assert "Epoch 1/" not in done.stderr
    assert_nothing_partial(luigi.root)


@pytest.mark.slow
def test_space_for_a_start_suffices_for_a_resumption(first_run, disk):
    luigi = Luigi(disk(90), first_run.data_dir)
    flags = (*FAST[2:], "--Train-epochs", "6", *WIDE)
    process = luigi.start(*flags)
    luigi.wait_for("checkpoints/*/epoch-*/manifest.json", process)
    process.kill()
    process.communicate(timeout=300)
    # More than one checkpoint, and less than the two that a beginning asks for.
    ballast = fill(luigi.root.parent, leave=24_000_000)
    done = luigi(*flags)
    assert done.returncode == 0, done.stderr
    assert re.search("Resuming after epoch [1-5]/6", done.stderr)
    ballast.unlink()


@pytest.mark.faults
@pytest.mark.parametrize("line", ["Writing the records", "Training baseline_cnn", "Epoch 1/", "Report: building"])
def test_a_disk_that_fills_up_while_it_works(first_run, disk, count, line):
    luigi = Luigi(disk(40), first_run.data_dir)
    process = luigi.start(*FAST)
    said = []
    for text in process.stderr:
        said.append(text)
        if line in text:
            ballast = fill(luigi.root.parent)
            break
    _, rest = process.communicate(timeout=300)
    said = "".join([*said, rest])
    assert process.returncode == STORAGE, said
    # A training that has not begun yet asks for its space first, and says the same without the system's words.
    full = r"No space left on device.*About [\d.]+ MB are needed, [\d.]+ MB are free"
    refused = r"[\d.]+ MB are needed, but only [\d.]+ MB are free"
    assert re.search(f"{full}|{refused}" if line == "Training baseline_cnn" else full, said, re.DOTALL), said
    assert "Traceback" not in said
    assert_nothing_partial(luigi.root)
    ballast.unlink()
    assert luigi(*FAST).returncode == 0
    assert outcome(luigi.root) == outcome(first_run.root)
    count["full or read-only disks"] += 1


@pytest.mark.slow
def test_a_read_only_root_is_refused_for_writing_and_readable(first_run, disk, count):
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
