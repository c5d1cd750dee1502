"""The command ``search``. Its trials are processes of ``stand_in.py``, except in the last test."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import in_process
import pytest
from luigi_process import FAST, PROJECT, TINY, Luigi

STAND_IN = Path(__file__).resolve().parent / "stand_in.py"
DATA = ["--Source-origin", "placeholder", "--Records-validation-share", "0.1"]
SPACE = "learning_rate=log:1e-4:0.4"


@pytest.fixture
def luigi(tmp_path, monkeypatch):
    """A root on which each child process of the search is the stand-in."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return Luigi(tmp_path / "luigi", tmp_path / "no-tfds")


def search(luigi, *flags, space=SPACE, trials=1):
    return luigi.command("search", "--space", space, "--trials", f"{trials}", *DATA, "--Train-epochs", "3", *flags)


def result(luigi):
    (path,) = luigi.root.glob("search/*.json")
    return json.loads(path.read_text())


def test_records_without_validation_split_are_refused(luigi):
    done = search(luigi, "--Records-validation-share", "0")
    assert done.returncode == 2
    assert "[Records] validation_share: expected more than 0, as a search never uses the test split" in done.stderr
    assert not (luigi.root / "search").exists()


def test_a_missing_package_is_named_with_its_remedy(luigi, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "pipeline.runs.study", raising=False)
    done = search(luigi)
    assert done.returncode == 2
    assert "search: the package optuna is not installed. Install it with: pip install '.[search]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--space", "epoch=1:2"], "Did you mean 'epochs'?"),
        (["--space", "epochs=1:2", "--trials", "0"], "--trials: expected 1 or more"),
        ([], "the following arguments are required: --space"),
        (["--space", "epochs=1:2", "--Train-epoch", "1"], "unrecognized argument --Train-epoch"),
    ],
)
def test_a_wrong_command_line_is_refused(luigi, words, expected):
    done = luigi.command("search", *words)
    assert done.returncode == 2
    assert expected in done.stderr


def test_the_name_after_the_command_is_an_experiment(luigi):
    done = luigi.command("search", "cifar", "--space", "epochs=1:2")
    assert done.returncode == 2
    assert "got 'cifar'. Did you mean 'cifar10'?" in done.stderr


@pytest.mark.slow
def test_two_processes_share_a_search_and_interrupt_bad_trials_by_the_validation_split_alone(luigi):
    flags = ["--space", SPACE, "--trials", "9", *DATA, "--Train-epochs", "3"]
    code = f"import sys; sys.executable = {sys.executable!r}; from tasks.__main__ import main; main()"
    # The first line of the fixture's program has the real one.
    python = Path(sys.executable).read_text().split()[2]
    how = {"env": luigi.environment({}), "cwd": PROJECT, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([python, "-c", code, "search", *flags], **how) as first,
        subprocess.Popen([python, "-c", code, "search", *flags], **how) as second,
    ):
        errors = first.communicate()[1], second.communicate()[1]
    assert [first.returncode, second.returncode] == [0, 0], errors
    found = result(luigi)
    states = {trial["number"]: trial["state"] for trial in found["trials"]}
    assert len(states) == 9
    assert not {*states.values()} - {"finished", "pruned"}
    pruned = [trial for trial in found["trials"] if trial["state"] == "pruned"]
    assert pruned
    for trial in pruned:
        assert trial["settings"]["learning_rate"] >= 0.01
        assert (trial["epochs"], trial["values"]) == (2, {"0": pytest.approx(0.1 * 2 / 3)})
    # The test accuracy of the stand-in is the greatest where the validation accuracy is the least.
    assert all(trial["settings"]["learning_rate"] < 0.01 for trial in found["best"])
    assert [trial["values"] for trial in found["best"]] == [{"0": 0.9, "1": 0.89, "2": 0.88}] * len(found["best"])
    assert f"learning_rate = {found['best'][0]['settings']['learning_rate']}" in found["settings_file"]
    # Interrupted runs are not published.
    assert len([*luigi.root.glob("runs/[!.]*")]) == 9 - len(pruned) + 2 * len(found["best"])
    assert not [*luigi.root.glob("runs/.*")]

    trainings = (luigi.root / "trainings").read_text()
    again = search(luigi, trials=9)
    assert again.returncode == 0, again.stderr
    assert (luigi.root / "trainings").read_text() == trainings
    assert result(luigi) == found


def test_a_run_that_finishes_while_it_is_interrupted_is_finished(luigi, tmp_path):
    from pipeline.runs.study import Study
    from pipeline.settings.search_space import parse_space
    from tasks.commands.run import _train
    from tasks.settings import in_force

    flags = [*DATA, "--Train-epochs", "3"]
    # The source that a run needs.
    assert search(luigi, "--Records-validation-share", "0").returncode == 2
    (luigi.root / "late").touch()
    study = Study(tmp_path, "s", parse_space("learning_rate=0.1:0.4"), metric="validation_accuracy", seed=0)
    for _ in range(5):
        good = study.begin(9)
        good.report(0.9, 2)
        study.end(good, 0.9)
    bad = study.begin(9)
    with (
        in_process.started("tasks", env=luigi.environment({})),
        in_force(["--module", "tasks", "Train", *flags]),
    ):
        assert _train(study, study.settings(bad), flags, bad) == (0, 0.1)


@pytest.mark.slow
def test_failures_of_a_trial_and_of_the_machine_differ(luigi, capfd):
    luigi.root.mkdir(parents=True)
    (luigi.root / "full").touch()
    done = search(luigi)
    assert done.returncode == 6
    # The trial is tried again, because other settings would have failed as well.
    (luigi.root / "full").unlink()
    # A seed that fails leaves its settings without a mean. They remain the best, because there are no others.
    (luigi.root / "seed-1-fails").touch()
    done = search(luigi)
    assert done.returncode == 0, done.stderr
    assert "Seed 1 of trial 1 failed. Its settings are ranked last." in done.stderr
    assert [trial["values"] for trial in result(luigi)["best"]] == [{"0": 0.9, "1": None, "2": 0.88}]
    assert "--Report-seeds=0,2" in capfd.readouterr().out
    trainings = (luigi.root / "trainings").read_text()
    assert search(luigi).returncode == 0
    assert (luigi.root / "trainings").read_text() == trainings
    first, again = (line.split()[-2] for line in (luigi.root / "trainings").read_text().splitlines()[:2])
    assert first == again
    done = search(luigi, space="learning_rate=0.6:1", trials=3)
    assert done.returncode == 1
    failed = [json.loads(path.read_text()) for path in luigi.root.glob("search/*.json")]
    assert sorted(trial["state"] for one in failed for trial in one["trials"]) == ["failed", "finished"]


@pytest.mark.slow
def test_a_killed_search_resumes_its_run_and_reuses_the_others(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    flags = ["--space", "learning_rate=log:1e-3:1e-2", "--trials", "1", *DATA[2:], *TINY, *FAST, "--Train-epochs", "9"]
    command = [sys.executable, "-m", "tasks", "search", *flags]
    how = {"env": luigi.environment({}), "cwd": PROJECT, "start_new_session": True, "text": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **how) as process:
        luigi.wait_for("checkpoints/*/epoch-*", process)
        os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, check=False, **how)
    assert done.returncode == 0, done.stderr
    assert "Resuming after epoch" in done.stderr
    found = result(luigi)
    (trial,) = found["trials"]
    runs = [json.loads(path.read_text()) for path in luigi.root.glob("runs/tests*/run.json")]
    assert {run["seed"]: run["validation_accuracy"] for run in runs} == {
        int(seed): value for seed, value in trial["values"].items() | found["best"][0]["values"].items()
    }
    assert sorted(run["epochs_restored"] > 0 for run in runs) == [False, False, True]
    page = (luigi.root / "report" / "report.html").read_text()
    assert f"Search: {found['name']}" in page
    assert (luigi.root / "report" / f"search-{found['name']}.ini").read_text() == found["settings_file"]
    # The settings file is an experiment with a fresh run.
    (path,) = luigi.root.glob("search/*.ini")
    status = luigi.status("--Storage-root", str(luigi.root), LUIGI_CONFIG_PATH=str(path))
    assert status["Train"]["state"] == "fresh"
