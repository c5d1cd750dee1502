"""``make bench ARGS=gpu`` on a CPU, where TensorFlow and Beam cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from training_runs import QUICKLY_COMPILED

PROJECT = Path(__file__).resolve().parent.parent

JAX_ALONE = Path(__file__).with_name("jax_alone.py")


def bench(*arguments):
    command = [sys.executable, JAX_ALONE, "-m", "benchmarks", "gpu", *map(str, arguments)]
    env = {**os.environ, **QUICKLY_COMPILED}
    return subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_it_measures_on_the_device_it_finds_without_tensorflow(small_records, tmp_path):
    output = tmp_path / "gpu.json"
    few = ["--device", "cpu", "--networks", "mnist_dense", "--batches", 64, 500, "--epochs", 1]
    done = bench("--records", small_records, *few, "--output", output)
    assert done.returncode == 0, done.stderr
    found = json.loads(output.read_text())
    receipt = found["receipts"]["bfloat16"]
    assert (receipt["effective_device"], receipt["device_verified"]) == ("cpu", True)
    assert found["falsified"] == {}, "nothing can stand in for a CPU"
    # A batch of 500 is more than there are examples.
    assert [(row["global_batch_size"], row["precision"]) for row in found["throughput"]] == [
        (64, "float32"),
        (64, "bfloat16"),
    ]
    for row in found["throughput"]:
        assert row["step_flops"] > 0.95 * 4 * 64 * row["parameters"], "forwards, and backwards to the weights"
        assert min(row["images_per_second"], row["images_per_second_from_device"]) > 0
    assert len(found["to_accuracy"]["accuracies"]) == 1
    assert "mnist_dense, batch 64, float32" in done.stderr


@pytest.mark.slow
def test_the_cpu_does_not_pass_for_the_device_it_poses_as():
    # As on a machine with a GPU, whose names a CPU gives here: its speed gives it away, and once its own name.
    code = """
import os, time, types
os.environ["KERAS_BACKEND"] = "jax"
from benchmarks import gpu
from pipeline.settings.training import TrainSettings
from pipeline.hardware.placement import Placement
from pipeline.hardware import receipt
from pipeline.hardware.jax import Jax

receipt._SIDE_ON_ACCELERATOR = 1_024
# The CPU's own time: the tests beside this one are not to decide.
receipt.time = types.SimpleNamespace(perf_counter=time.process_time)

class Card(Jax):
    def observe(self, strategy):
        seen = {"variable_devices": ["gpu:0"], "computation_devices": ["gpu:0"], "observed": "probe"}
        return seen if strategy == ("the card",) else super().observe(strategy)

    def computations(self, device, side, precision):
        return super().computations("cpu", side, precision)

class Posing(gpu._Posing):
    observe = Card.observe.__get__(Card())

gpu._Posing = Posing
card = Placement(
    runtime=Card(), strategy=("the card",), num_replicas=1, requested_device="gpu", effective_device="gpu"
)
print(*(len(one["failed_checks"]) for one in gpu._falsified(TrainSettings(), card).values()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )
    assert [int(number) for number in done.stdout.split()] == [3, 1], done.stderr


def test_without_records_it_says_where_they_come_from(tmp_path, capsys):
    pytest.importorskip("jax", reason="JAX is not installed")
    from benchmarks.gpu import main

    assert main(["--records", str(tmp_path / "none")]) not in (0, 1)
    said = capsys.readouterr().err
    assert "none" in said
    assert "Traceback" not in said


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named_with_what_to_do(small_records, capsys):
    pytest.importorskip("jax", reason="JAX is not installed")
    from benchmarks.gpu import main

    assert main(["--records", str(small_records)]) == 7
    said = capsys.readouterr().err
    assert "gpu" in said
    assert "Traceback" not in said
