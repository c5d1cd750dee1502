"""Tuning: what is timed, what is chosen, and that the choice reaches the run."""

import json

import pytest
from luigi_process import FAST
from test_training import run

from pipeline.config import TrainSettings
from pipeline.metrics import RECORD_NAME
from pipeline.training import tuning
from pipeline.training.computation import Computation

RULE = Computation(precision="bfloat16", jit_compile=False)
OTHERS = [RULE, Computation(precision="float32", jit_compile=False), Computation(precision="float32", jit_compile=True)]


@pytest.mark.parametrize(
    ("speeds", "winner"),
    [
        ([100, 90, 80], 0),
        # Faster, but by no more than noise.
        ([100, 104, 80], 0),
        ([100, 106, 80], 1),
        ([100, 106, 200], 2),
    ],
)
def test_another_choice_must_be_faster_than_the_rules_by_more_than_noise(speeds, winner):
    by_computation = dict(zip(OTHERS, speeds, strict=True))
    asked = []

    def speed(computation):
        asked.append(computation)
        return by_computation[computation]

    assert tuning._fastest(RULE, speeds[0], OTHERS, speed) == (OTHERS[winner], speeds[winner])
    assert RULE not in asked, "what is timed already is not timed again"


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({}, "cpu", {("float32", False), ("bfloat16", False)}),
        ({}, "gpu", {("float32", False), ("float32", True), ("bfloat16", False), ("bfloat16", True)}),
        ({"precision": "float32"}, "gpu", {("float32", False), ("float32", True)}),
        ({"precision": "bfloat16", "jit_compile": "false"}, "gpu", {("bfloat16", False)}),
    ],
)
def test_only_what_is_auto_is_varied(settings, device, expected):
    rule = Computation(precision=settings.get("precision", "bfloat16"), jit_compile=False)
    found = tuning._arithmetic(TrainSettings(**settings), device, rule)
    assert {(one.precision, one.jit_compile) for one in found} == expected


@pytest.fixture(scope="module")
def table(small_records):
    return tuning.tune(small_records, TrainSettings(global_batch_size=32, device="cpu"))


def test_the_table_holds_the_choice_and_every_candidate(table):
    candidates = table["candidates"]
    assert json.loads(json.dumps(table)) == table
    assert all(row["examples_per_second"] > 0 for row in candidates)
    assert {row["precision"] for row in candidates} == {"float32", "bfloat16"}
    assert {row["in_memory"] for row in candidates if row["timed"] == "input"} == {True, False}
    steps = {tuple(row[name] for name in table["rule"]): row for row in candidates if row["timed"] == "step"}
    chosen = steps[tuple({**table["chosen"], "in_memory": True}.values())]
    rule = steps[tuple(table["rule"].values())]
    assert chosen["examples_per_second"] >= rule["examples_per_second"]


def test_a_run_is_computed_as_was_chosen(small_records, tmp_path):
    chosen = Computation(precision="float32", jit_compile=False, steps_per_execution=4, in_memory=False)
    found = {"chosen": chosen.to_json(), "rule": chosen.to_json(), "candidates": []}
    record = run(small_records, tmp_path / "a", epochs=1, tuning=found)
    assert json.loads((tmp_path / "a" / RECORD_NAME).read_text())["tuning"] == found
    assert (record["precision"], record["steps_per_execution"], record["input_in_memory"]) == ("float32", 4, False)


@pytest.mark.slow
def test_what_was_measured_is_kept_and_part_of_the_run(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    measure = [*FAST, "--Train-tune", "measure", "--Train-precision", "float32"]
    assert luigi.status(*measure)["Tune"]["state"] == "missing"
    done = luigi(*measure)
    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in luigi(*measure).stderr
    (tuned,) = luigi.artefacts("tuning")
    choice = json.loads((luigi.root / "tuning" / tuned / "manifest.json").read_text())["tuning"]["chosen"]
    manifests = [json.loads(path.read_text()) for path in luigi.root.glob("runs/*/manifest.json")]
    assert choice in [manifest["identity"]["upstream"].get("computation") for manifest in manifests]
    # Another seed is trained anew and not measured anew.
    status = luigi.status(*measure, "--Train-seed", "1")
    assert {name: entry["state"] for name, entry in status.items()} == {
        **dict.fromkeys(("Source", "Records", "Tune"), "fresh"),
        **dict.fromkeys(("Train", "Report"), "stale"),
    }
