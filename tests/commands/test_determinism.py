"""A run trained again: the report calls it bit-identical only if its weights came out the same."""

import json

import pytest
from luigi_process import FAST, TINY
from own_package import write_package

# Begins with other weights each time.
RANDOM = """
import os

import keras


def build(image_shape, num_labels):
    drawn = keras.initializers.RandomNormal(seed=int.from_bytes(os.urandom(3)))
    layers = [keras.layers.Flatten(), keras.layers.Dense(num_labels, kernel_initializer=drawn, name="head")]
    return keras.Sequential([keras.Input(image_shape, dtype="uint8"), keras.layers.Rescaling(1 / 255), *layers])
"""


@pytest.fixture
def luigi(first_run, tmp_path):
    return first_run.copy(tmp_path / "own")


def repeated(luigi) -> dict[str, object]:
    """Name of a run's folder → what the report says of its repetition."""
    names = {
        json.loads(path.read_text())["fingerprint"]: path.parent.name for path in luigi.root.glob("runs/*/run.json")
    }
    return {names[run["fingerprint"]]: run["repetition"] for run in luigi.report()["runs"]}


def test_a_run_of_several_processes_is_not_repeated(luigi):
    done = luigi.command("verify-determinism", *FAST, "--Train-processes", "2", "--Train-device", "cpu")
    assert done.returncode == 2
    assert "[Train] processes: expected 1 for verify-determinism" in done.stderr


def test_a_file_in_the_place_of_the_results_is_a_storage_error(luigi):
    (luigi.root / "determinism").write_text("not a folder")
    done = luigi.command("verify-determinism", *FAST)
    assert done.returncode == 6
    assert f"{luigi.root}/determinism: cannot be written (Not a directory: {luigi.root}/determinism/" in done.stderr


@pytest.mark.slow
def test_the_same_weights_are_called_bit_identical_and_the_result_goes_with_the_run(luigi):
    args = [*FAST, *TINY, "--Train-deterministic", "true"]
    done = luigi.here("tasks", "Report", *args)
    assert done.returncode == 0, done.stderr
    assert "not repeated" in (luigi.root / "report" / "report.html").read_text()
    (name,) = [path.parent.name for path in luigi.root.glob("runs/*/run.json") if '"true"' in path.read_text()]
    done = luigi.command("verify-determinism", *args, "--Storage-log-format", "json")
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, filter(lambda line: line.startswith("{"), done.stderr.splitlines()))
    assert {line["stage"] for line in lines if "Epoch 1/" in line["message"]} == {"Train"}
    assert f"{name} is bit-identical in each training, weights sha256" in done.stdout
    assert [path.name for path in (luigi.root / "determinism").iterdir()] == [f"{name}.json"]
    assert luigi.status(*args)["Report"]["state"] == "stale"
    assert luigi.here("tasks", "Report", *args).returncode == 0
    others = {run: found for run, found in repeated(luigi).items() if run != name}
    assert repeated(luigi)[name]["is_identical"] is True
    assert set(others.values()) == {None}
    gone = luigi.command("clean-stale", "--yes", *FAST)
    assert name in gone.stdout
    assert not [*(luigi.root / "determinism").iterdir()]


@pytest.mark.slow
def test_different_weights_give_the_exit_code_of_the_gate_and_appear_in_the_report(luigi, tmp_path):
    package = write_package(tmp_path / "work")
    (package / "networks.py").write_text(RANDOM)
    args = [*FAST, "--Train-model", "my_package.networks:build"]
    missing = luigi.python("-m", "tasks", "verify-determinism", *args, cwd=package.parent)
    assert (missing.returncode, 'Run "tensorcraft run" first.' in missing.stderr) == (2, True)
    assert luigi.python("-m", "tasks", "Train", *args, cwd=package.parent).returncode == 0
    for _ in range(2):
        done = luigi.python("-m", "tasks", "verify-determinism", *args, cwd=package.parent)
        assert done.returncode == 9, done.stderr
        assert "the weights differ between trainings" in done.stderr
    done = luigi.python("-m", "tasks", "Report", *args, cwd=package.parent)
    assert done.returncode == 0, done.stderr
    (found,) = filter(None, repeated(luigi).values())
    assert not found["is_identical"]
    assert len(found["trainings"]) == 3
    assert "repetition differs" in (luigi.root / "report" / "report.md").read_text()
