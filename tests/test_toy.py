"""A package from outside adds a source, problem, model, recipe, exporter, section and command without an edit."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from luigi_process import IN_CHILD, Luigi
from PIL import Image

SUMS = ["--Source-dataset", "digits", "--Train-model", "toy_dense", "--Train-training-recipe", "toy_adam"]
FAST = [
    "--Train-epochs",
    "40",
    "--Train-precision",
    "float32",
    "--Train-global-batch-size",
    "32",
    "--Records-train-shards",
    "2",
]
PROJECT = Path(__file__).resolve().parents[1]

# Each command starts its own process with the package, and most of them import TensorFlow.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def toy(tmp_path_factory, tiny_tfds):
    """Runs commands with the package on the path, where its code may be edited."""
    folder = tmp_path_factory.mktemp("toy")
    for part in ("toy", "toy-1.dist-info"):
        shutil.copytree(PROJECT / "tests" / "toy" / part, folder / "site" / part)
    luigi = Luigi(folder, tiny_tfds)
    path = os.pathsep.join([str(folder / "site"), str(PROJECT)])

    def command(*args, expect=0):
        done = luigi.python("-m", "tasks", *args, PYTHONPATH=path, **IN_CHILD)
        assert done.returncode == expect, done.stderr
        return done

    luigi.toy, luigi.site = command, folder / "site" / "toy"
    command("Report", *SUMS, *FAST)
    return luigi


def run_folder(toy):
    (name,) = toy.artifacts("runs")
    return toy.root / "runs" / name


def test_the_run_learns_the_sum_and_names_its_problem(toy):
    record = json.loads((run_folder(toy) / "run.json").read_text())
    assert (record["problem"], record["model"], record["outputs"]) == ("digit_sum", "toy_dense", "values")
    assert record["test_loss"] < 10, "the variance of the sums is 16.5"
    evaluation = json.loads((run_folder(toy) / "evaluation.json").read_text())
    assert evaluation.keys() == {"num_examples", "mean_error", "worst_error"}


def test_the_report_shows_the_evaluation_and_the_section(toy):
    report = toy.report()
    (run,) = report["runs"]
    assert run["evaluation"]["num_examples"] == 128
    page = (toy.root / "report" / "report.html").read_text()
    assert "Sums of 128 pairs, off by" in page
    assert "1 runs of the toy" in page


def test_predict_gives_the_sum_of_each_image(toy, tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 16), np.uint8)).save(tmp_path / "images" / name)
    toy.toy("predict", str(tmp_path / "images"), "--output", str(tmp_path / "out"), *SUMS, *FAST)
    rows = [*csv.DictReader((tmp_path / "out" / "predictions.csv").open())]
    assert [row["path"] for row in rows] == [str(tmp_path / "images" / name) for name in ("a.png", "b.png")]
    assert rows[0]["sum"] == rows[1]["sum"]


def test_export_writes_the_form_and_compares_it_with_keras(toy):
    assert "NumPy arrays" in toy.toy("export", *SUMS, *FAST).stdout
    (name,) = toy.artifacts("exports")
    facts = json.loads((toy.root / "exports" / name / "export.json").read_text())
    assert facts["forms"].keys() == {"NumPy arrays"}
    assert facts["forms"]["NumPy arrays"]["agreement"] == 1
    assert facts["forms"]["NumPy arrays"]["largest_difference"] < 1e-3


def test_the_command_is_listed_and_runs(toy):
    assert "\n  add-digits " in toy.toy("--help").stdout
    assert toy.toy("add-digits", "3", "4").stdout == "7\n"
    assert "Did you mean 'add-digits'?" in toy.toy("add-digit", expect=2).stderr
    assert "Did you mean 'toy_dense'?" in toy.toy("status", "--Train-model", "toy_dens", expect=2).stderr


@pytest.mark.parametrize(
    ("module", "stale"),
    [
        ("problem", "Train"),
        ("evaluation", "Train"),
        ("models", "Train"),
        ("source", "Source"),
        ("report", "Report"),
        ("section", "Report"),
    ],
)
def test_an_edit_of_the_package_makes_stale_what_its_code_made(toy, module, stale):
    def reasons():
        stage = json.loads(toy.toy("status", "--json", *SUMS, *FAST).stdout)[stale]
        return [reason for reason in stage["reasons"] if f"toy.{module}" in reason]

    assert not reasons()
    file = toy.site / f"{module}.py"
    text = file.read_text()
    try:
        file.write_text(f"{text}\nEDITED = 1\n")
        assert reasons() == [f"toy.{module} changed"]
    finally:
        file.write_text(text)
