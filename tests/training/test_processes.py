"""Several processes that train one network: the same weights as one, and one end for all."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from luigi_process import PROJECT
from training_runs import QUICKLY_COMPILED, run
from warm import WarmPopen

from pipeline.runs.metrics import METRICS_NAME, WEIGHTS_NAME, read_metrics
from pipeline.runs.record import read_record
from pipeline.stage_process import IN_PROCESS
from tasks.commands.run import free_port


def setup_module() -> None:
    global load_file
    from safetensors.numpy import load_file


pytestmark = pytest.mark.slow

PLAIN = {"model": "backend_network:build", "training_recipe": "adam", "backend": "jax", "augment": "flip, mixup:0.2"}


class Together:
    """So many processes that train on the same records, with checkpoints of their own unless given."""

    def __init__(self, records, folder, processes, checkpoints=None, **settings):
        folder.mkdir(exist_ok=True)
        self.folders = [folder / str(number) for number in range(processes)]
        address = f"127.0.0.1:{free_port()}"
        settings = {**PLAIN, **settings, "processes": processes, "coordinator_address": address}
        self.logs = [folder / f"{number}.log" for number in range(processes)]
        self.jobs = [
            [str(records), str(one), str(checkpoints or folder / "checkpoints"), {**settings, "process_id": number}]
            for number, one in enumerate(self.folders)
        ]
        self.processes = {}

    def start(self):
        # Process 0 draws the weights itself.
        environment = {**os.environ, **QUICKLY_COMPILED, IN_PROCESS: "1"}
        for number, job in enumerate(self.jobs):
            command = [sys.executable, "-m", "tests.one_of_several", json.dumps(job)]
            with self.logs[number].open("w") as log:
                how = {"stdout": subprocess.DEVNULL, "stderr": log, "env": environment, "cwd": PROJECT}
                self.processes[number] = WarmPopen(command, **how)
        return self

    def end(self, seconds=300):
        """Number → what its process said last."""
        for process in self.processes.values():
            process.wait(seconds)
        return {number: self.logs[number].read_text().strip().splitlines()[-1] for number in self.processes}


@pytest.fixture(scope="module")
def alone(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    return folder, run(small_records, folder, **PLAIN)


def test_several_processes_end_with_the_weights_of_one(alone, small_records, tmp_path):
    processes = 2
    together = Together(small_records, tmp_path / "together", processes).start()
    said = together.end()
    assert all(process.returncode == 0 for process in together.processes.values()), said
    one, chief = load_file(alone[0] / WEIGHTS_NAME), load_file(together.folders[0] / WEIGHTS_NAME)
    for name, weight in chief.items():
        np.testing.assert_allclose(weight, one[name], rtol=1e-3, atol=1e-5)
    rows = [read_metrics(folder / METRICS_NAME) for folder in (alone[0], together.folders[0])]
    assert [row["loss"] for row in rows[0]] == pytest.approx([row["loss"] for row in rows[1]], rel=1e-4)
    record = read_record(together.folders[0])
    assert (record.processes, record.num_replicas, record.device_verified) == (processes, processes, True)
    seen = record.receipt["processes"]
    assert [len(one["devices"]) for one in seen] == [1] * processes
    assert sorted(one["devices"][0] for one in seen) == sorted(record.receipt["placement"]["computation_devices"])
    assert record.steps_per_epoch == alone[1]["steps_per_epoch"]
    assert record.time_breakdown.step_flops == pytest.approx(alone[1]["time_breakdown"]["step_flops"], rel=0.05)
    assert f"a benchmark runs in one process, and the run has {processes}" in record.time_breakdown.not_measured


def test_if_one_process_is_killed_all_end_with_one_message_and_resume(small_records, tmp_path):
    kill(train_until_epoch_2(small_records, tmp_path / "first"), killed=1)
    again = train_until_epoch_2(small_records, tmp_path / "again", checkpoints=tmp_path / "first" / "checkpoints")
    assert "Resuming after epoch" in again.logs[1].read_text()
    kill(again, killed=0)


def train_until_epoch_2(records, folder, **how):
    """Two processes, with two epochs done since they were started and thousands to come."""
    together = Together(records, folder, 2, epochs=5000, **how).start()
    while together.logs[0].read_text().count("Epoch ") < 3:
        assert together.processes[0].poll() is None, together.logs[0].read_text()
        time.sleep(0.2)
    return together


def kill(together, *, killed):
    """Kill what trains of one of two processes, and look how both end."""
    other = 1 - killed
    of_it = psutil.Process(together.processes[killed].pid).children(recursive=True)
    (training,) = [child for child in of_it if "pipeline.stage_process" in child.cmdline()]
    training.send_signal(signal.SIGKILL)
    said = together.end()
    assert said[other].startswith(f"WorkerDiedError: [Train] processes: process {killed} of 2 on ")
    assert "stopped. Training ended in all processes" in said[other]
    assert "was ended by SIGKILL" in said[killed]
    log = together.logs[other].read_text()
    assert "Traceback" not in log
    assert "Check failure stack trace" not in log
