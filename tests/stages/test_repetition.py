"""A run trained again: what is called bit-identical came out so, and what came out otherwise is said to."""

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
    done = luigi.here("tasks", "Repetition", *FAST, "--Train-processes", "2", "--Train-device", "cpu")
    assert done.returncode == 2
    assert "[Train] processes: expected 1, to train a run again" in done.stderr


@pytest.mark.slow
def test_the_same_weights_are_called_bit_identical_where_that_was_seen_and_nowhere_else(luigi):
    args = [*FAST, *TINY, "--Train-deterministic", "true"]
    done = luigi.here("tasks", "Report", *args)
    assert done.returncode == 0, done.stderr
    assert "not repeated" in (luigi.root / "report" / "report.md").read_text()
    (name,) = [path.parent.name for path in luigi.root.glob("runs/*/run.json") if '"true"' in path.read_text()]
    done = luigi.here("tasks", "Repetition", *args, "--Repetition-of", name)
    assert done.returncode == 0, done.stderr
    assert f"Repetition: {name} is bit-identical, weights sha256" in done.stdout
    assert luigi.here("tasks", "Report", *args).returncode == 0
    others = {run: found for run, found in repeated(luigi).items() if run != name}
    assert repeated(luigi)[name]["is_identical"] is True
    assert set(others.values()) == {None}
    before = luigi.artefacts("repetitions")
    again = luigi.here("tasks", "Repetition", *args)
    assert (again.returncode, luigi.artefacts("repetitions")) == (0, before)
    assert f"{name} was found bit-identical by" in again.stdout
    kept = luigi.command("clean-stale", *args)
    assert "repetitions" not in kept.stdout
    gone = luigi.command("clean-stale", *FAST)
    assert "repetitions" in gone.stdout


@pytest.mark.slow
def test_other_weights_end_with_the_gates_exit_code_and_are_told_in_the_report(luigi, tmp_path):
    package = write_package(tmp_path / "work")
    (package / "networks.py").write_text(RANDOM)
    args = [*FAST, "--Train-model", "my_package.networks:build"]
    done = luigi.python("-m", "tasks", "Repetition", *args, cwd=package.parent)
    assert done.returncode == 9, done.stderr
    assert "trained again it ended with other weights" in done.stderr
    done = luigi.python("-m", "tasks", "Report", *args, cwd=package.parent)
    assert done.returncode == 0, done.stderr
    assert {found["is_identical"] for found in repeated(luigi).values() if found} == {False}
    assert "| differs |" in (luigi.root / "report" / "report.md").read_text()
    # Tried again: it may come out either way.
    assert luigi.python("-m", "tasks", "Repetition", *args, cwd=package.parent).returncode == 9


def test_a_run_that_the_settings_do_not_reach_is_refused_with_those_that_they_do(luigi):
    (name,) = luigi.artefacts("runs")
    done = luigi.python("-m", "tasks", "Repetition", *FAST, "--Repetition-of", "baseline_cnn-0123456789ab")
    assert done.returncode == 2, done.stderr
    assert f"[Repetition] of: expected a run that the settings reach, of {name}; got 'baseline_cnn-0123456789ab'" in (
        done.stderr
    )
