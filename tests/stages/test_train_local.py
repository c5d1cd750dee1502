"""``make train-local``: the pipeline by two processes of one machine, as on two hosts."""

import re
import shutil
import signal
import subprocess
import sys

import psutil
import pytest
from luigi_process import FAST, PROJECT, TINY, Luigi
from training_runs import QUICKLY_COMPILED

from tasks.commands.run import free_port

PROCESSES = ["--Train-processes", "2", "--Train-device", "cpu"]


@pytest.fixture
def with_records(first_run, tmp_path) -> Luigi:
    """A root with records and no run."""
    luigi = first_run.copy(tmp_path / "with_records")
    shutil.rmtree(luigi.root / "runs")
    shutil.rmtree(luigi.root / "report")
    return luigi


@pytest.mark.slow
def test_two_processes_leave_one_run_and_one_report_and_then_have_nothing_to_do(with_records):
    luigi, command = with_records, ("-m", "tasks", "train-local", "--processes", "2", *FAST, *TINY)
    done = luigi.python(*command, **QUICKLY_COMPILED)
    assert done.returncode == 0, done.stderr
    assert "Train: joining process 0 at 127.0.0.1:" in done.stderr
    assert "Train: process 0 has finished" in done.stderr
    (run,) = luigi.report()["runs"]
    assert (run["processes"], run["num_replicas"], run["device_verified"]) == (2, 2, True)
    assert run["receipt"]["processes"][0]["devices"] == ["cpu:0"]
    assert "2 processes" in (luigi.root / "report" / "report.html").read_text()
    # Who asks for the state is none of the processes.
    states = {name: stage["state"] for name, stage in luigi.status(*FAST, *TINY, *PROCESSES).items()}
    assert set(states.values()) == {"fresh"}
    again = luigi.python(*command)
    assert (again.returncode, again.stderr.count("Nothing to do. Every stage is fresh.")) == (0, 1)
    assert "Train: process 0 has finished" in again.stderr
    forced = luigi.python(*command, "--Force-stage", "Train", **QUICKLY_COMPILED)
    assert forced.returncode == 0, forced.stderr
    assert re.search(r"Train: building runs/\S+ \(stale: requested by \[Force\] stage = Train\)", forced.stderr)
    (trained_again,) = luigi.report()["runs"]
    assert trained_again["finished_at"] > run["finished_at"]


@pytest.mark.slow
def test_one_signal_ends_all_of_them_in_good_order(with_records):
    command = [sys.executable, "-m", "tasks", "train-local", *FAST, *TINY, "--Train-epochs", "5000"]
    how = {"env": with_records.environment(QUICKLY_COMPILED), "cwd": PROJECT, "text": True, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **how)
    said = []
    for line in process.stderr:
        said.append(line)
        if "Epoch 1/" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    # Two train. The command itself draws the weights, as its stages run in its own process here.
    stages = sum("pipeline.stage_process" in child.cmdline() for child in children)
    process.terminate()
    said += process.communicate(timeout=300)[1].splitlines(keepends=True)
    assert (process.returncode, stages) == (130, 2)
    assert not psutil.wait_procs(children, timeout=300)[1]
    assert sum("Interrupted. Finished stages are kept" in line for line in said) == 2, said


def start(luigi, number, port, *more):
    where = ["--Train-process-id", str(number), "--Train-coordinator-address", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "tasks", "Report", *FAST, *PROCESSES, *where, *more]
    how = {"env": luigi.environment({}), "cwd": PROJECT, "text": True, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, **how)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_if_one_process_is_killed_before_training_the_other_stops_with_a_message(tmp_path, tiny_tfds, killed):
    luigi, port = Luigi(tmp_path, tiny_tfds), free_port()
    processes = [start(luigi, number, port) for number in range(2)]
    said = ""
    for line in processes[0].stderr:
        said += line
        if "Source: building" in line:
            break
    processes[killed].kill()
    seen = {number: process.communicate(timeout=300)[1] for number, process in enumerate(processes)}
    left = 1 - killed
    assert processes[left].returncode == 1, said + seen[left]
    assert f"process {killed} of 2 on " in seen[left]
    assert "stopped. Training ended in all" in seen[left]
    assert "Traceback" not in seen[left]
    # What was half made process 0 has cleared away, unless it was killed.
    assert killed == 0 or not list(luigi.root.glob("*/.*"))


def test_processes_with_other_settings_of_any_stage_are_refused_before_any_data_is_prepared(tmp_path, tiny_tfds):
    luigi, port = Luigi(tmp_path, tiny_tfds), free_port()
    processes = [start(luigi, 0, port), start(luigi, 1, port, "--Records-test-shards", "7")]
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 2, said
        assert "process 1 on " in said
        assert "has other settings" in said
    assert not luigi.artifacts("source")


def test_a_missing_process_is_named_before_any_data_are_prepared(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    process = start(luigi, 0, free_port(), "--Train-join-timeout-seconds", "1")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "missing 1" in said
    assert "Traceback" not in said
    assert not luigi.artifacts("source")


def test_a_process_that_the_system_kills_is_named(tmp_path, tiny_tfds, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    done = Luigi(tmp_path, tiny_tfds).command("train-local", "--processes", "2", *FAST)
    assert done.returncode == 128 + signal.SIGKILL
    ended = "[Train] processes: one of the 2 processes was ended by SIGKILL. Finished stages and epochs are kept."
    assert done.stderr.endswith(f"ERROR WorkerDiedError: {ended} Run the same command again to resume.\n")


def test_a_process_without_a_rank_is_refused_with_the_setting(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    refused = luigi(*FAST, *PROCESSES)
    assert refused.returncode == 2
    assert "[Train] process_id: expected 0 to 1, because SLURM_PROCID" in refused.stderr
    assert not luigi.artifacts("source")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["Report", "--workers", "2"], "[core] workers: expected 1 where several processes train"),
        (["Nightly", "--date", "2026-11-01"], "[Train] processes: expected 1 for scheduled runs"),
    ],
)
def test_settings_unsupported_by_several_processes_are_refused_before_any_work(tmp_path, tiny_tfds, command, named):
    luigi = Luigi(tmp_path, tiny_tfds)
    number = ["--Train-process-id", "0", "--Train-coordinator-address", "127.0.0.1:9000"]
    refused = luigi.python("-m", "tasks", *command, *FAST, *PROCESSES, *number)
    assert refused.returncode == 2, refused.stderr
    assert named in refused.stderr
    assert not luigi.artifacts("source")


def test_one_process_is_no_company():
    command = [sys.executable, "-m", "tasks", "train-local", "--processes", "1"]
    refused = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--processes: expected 2 or more" in refused.stderr
