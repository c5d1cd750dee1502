"""The benchmarks' parts that take hours: what they ask of a run's record is there."""

import json

import pytest
from experiment_of import experiment_of
from luigi_process import PROJECT
from report_runs import EPOCH, report_of

from pipeline.errors import SettingsError
from pipeline.runs.record import TimeBreakdown
from tasks.config_files import experiments

FOLDER = PROJECT / "experiments"


def setup_module() -> None:
    global GOALS, NAMES, _comparisons, _requested, read_run
    from benchmarks.experiments import GOALS, NAMES, _comparisons, _requested
    from pipeline.report.data.reading import read_run


def test_the_page_of_results_is_generated_from_results_json():
    from benchmarks import results

    assert results.PAGE.read_text(encoding="utf-8") == results.page()


def test_a_part_replaces_its_rows_of_the_same_kind_of_machine_only(tmp_path, monkeypatch):
    from benchmarks import results
    from benchmarks.comparison import Comparison

    monkeypatch.setattr(results, "_JSON", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "results.md")
    tables = json.loads((FOLDER.parent / "benchmarks" / "results.json").read_text(encoding="utf-8"))["tables"]
    (tmp_path / "results.json").write_text(json.dumps({"schema_version": 3, "comparisons": [], "tables": tables}))
    row = Comparison(
        number="1a", what="a step", against="another", unit="s", ours=[1.0], figure="s", figures=[1.0], goal=2,
        at_least=False, limit="–",
    )  # fmt: skip
    machines = [{"cpu_model": name, "granted_cores": 2, "instruction_sets": ["avx2"]} for name in ("A", "B", "A")]
    for day, machine in enumerate(machines, start=1):
        monkeypatch.setattr("pipeline.machine.describe", lambda machine=machine: machine)
        results.write("fit", [row.to_json()], f"2026-11-0{day}")
    rows = [(one["machine"]["cpu_model"], one["date"]) for one in results.read()["comparisons"]]
    assert rows == [("A", "2026-11-03"), ("B", "2026-11-02")]
    assert "| 1a | a step | another | 1 s (once) | ≤ 2 | yes | B, AVX2 | 2026-11-02 |" in results.PAGE.read_text()


def test_every_experiment_with_a_goal_is_there_once():
    files = experiments()
    assert set(NAMES) <= set(files)
    assert len(set(NAMES)) == len(NAMES)
    assert {experiment_of(files[name]) for name in NAMES} == {experiment_of(file) for file in files.values()}


def test_a_run_is_compared_with_its_goals(make_run):
    curves = [EPOCH | {"epoch": epoch, "test_accuracy": 0.9 + epoch / 100, "train_seconds": 60.0} for epoch in (1, 2)]
    times = dict.fromkeys(name for name, field in TimeBreakdown.model_fields.items() if field.is_required())
    folder = make_run(
        curves=curves, test_accuracy=0.92, test_tta_accuracy=0.945, test_loss=1.5, train_seconds=150.0, kept_epoch=2,
        steps_per_epoch=10, time_breakdown=times | {"step_flops": 1e12},
    )  # fmt: skip
    run = read_run(folder)
    found = {one.number: one for goal in GOALS for one in _comparisons(goal, run)}
    assert found["13 cifar10_94"].reached
    assert not found["13 mnist_cnn"].reached
    assert found["13 shakespeare"].reached
    assert not found["13 shakespeare_large"].reached
    assert found["13 cifar10_90, time"].reached
    assert not found["13 mnist_dense, time"].reached
    operations = "1.00e+13 FLOP to 90%, 2.00e+13 FLOP to 92%, 2.00e+13 FLOP to 94% with test-time augmentation"
    assert found["13 cifar10_94"].note == f"10,012 images/s, {operations}"


def test_a_run_that_diverged_is_an_error_of_its_own_part(make_run):
    run = read_run(make_run(test_accuracy=float("nan")))
    with pytest.raises(SettingsError, match="diverged"):
        [*_comparisons(GOALS[0], run)]


def test_the_requested_run_of_a_root_is_measured(make_run):
    folders = [make_run(f"seed-{seed}", seed=seed, fingerprint=str(seed) * 64) for seed in range(3)]
    report = json.loads(report_of(folders, current=["1" * 64]).to_json())
    assert _requested(report).seed == 1
