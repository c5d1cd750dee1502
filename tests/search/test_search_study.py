"""The study of a search, without trainings."""

import json
import os
import signal
import subprocess
import sys

import pytest
from luigi_process import PROJECT

from pipeline.errors import DamagedArtifactError
from pipeline.settings.search_space import Range, parse_space

SPACE = parse_space("learning_rate=log:1e-3:1e-1, augment=[none, flip]")
# Begins a trial, reports it and waits.
OTHER = """
import sys
from pathlib import Path
from pipeline.runs.study import Study
from pipeline.settings.search_space import parse_space
study = Study(Path(sys.argv[1]), "s", parse_space(sys.argv[2]), metric="validation_accuracy", seed=0)
print(study.begin(3).number, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def study(tmp_path):
    return open_study(tmp_path)


def open_study(folder, metric="validation_accuracy", space=SPACE, seed=0):
    from pipeline.runs.study import Study

    return Study(folder, "s", space, metric=metric, seed=seed)


def finish(study, value, requested=100):
    trial = study.begin(requested)
    study.end(trial, value)
    return trial.number


def write(study, requested=100):
    study.write("mine", requested, lambda settings: f"{settings}")
    return json.loads((study.folder / "s.json").read_text())


def test_the_trials_are_counted_until_all_have_begun(study):
    assert [finish(study, 0.5, requested=2) for _ in range(2)] == [0, 1]
    assert study.begin(2) is None
    assert study.begin(3) is not None


def test_values_have_four_digits_and_stay_within_their_bounds(study):
    settings = [study.settings(study.begin(100)) for _ in range(20)]
    assert all(1e-3 <= one["learning_rate"] <= 1e-1 for one in settings)
    assert all(float(f"{one['learning_rate']:.4g}") == one["learning_rate"] for one in settings)
    assert {one["augment"] for one in settings} == {"none", "flip"}
    assert Range(0.12341, 1.0).rounded(0.123411) == 0.12341


def test_a_search_that_begins_again_tries_the_same_settings(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    once = [open_study(tmp_path / "a") for _ in range(3)]
    again = open_study(tmp_path / "b")
    # Whichever process draws them.
    assert [one.settings(one.begin(9)) for one in once] == [again.settings(again.begin(9)) for _ in range(3)]
    other = open_study(tmp_path / "c", seed=2**31 - 1)
    assert other.settings(other.begin(9)) != again.settings(again.begin(9))


def test_a_trial_of_a_killed_process_is_tried_again(tmp_path):
    text = "learning_rate=log:1e-3:1e-1, augment=[none, flip]"
    command = [sys.executable, "-c", OTHER, str(tmp_path), text]
    how = {"cwd": PROJECT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **how, env={**os.environ, "PYTHONPATH": str(PROJECT)}) as other:
        assert other.stdout.readline() == "0\n"
        study = open_study(tmp_path)
        # As long as it lives, its trial is its own.
        assert study.begin(1) is None
        (running,) = write(study)["trials"]
        assert running["state"] == "running"
        mine = study.begin(2)
        assert mine.number == 1
        other.send_signal(signal.SIGKILL)
        other.wait()
    again = study.begin(2)
    assert study.settings(again) == running["settings"]
    for trial in (mine, again):
        study.end(trial, 0.5)
    # The trial that was given back does not count.
    assert study.begin(2) is None
    assert [one["state"] for one in write(study)["trials"]] == ["finished", "finished"]


def test_a_trial_that_was_killed_before_it_was_owned_is_tried_again(study):
    from optuna.trial import TrialState

    # The moment between two lines of the journal.
    study._study.ask({})
    again = study.begin(1)
    assert again.number == 1
    assert study.begin(1) is None
    assert study._study.trials[0].state == TrialState.FAIL


@pytest.mark.parametrize("owner", ["../victim.txt", "{folder}/victim.txt", "s.json", ["a", "list"], 7, None])
def test_an_owner_that_names_another_file_has_ended_and_the_file_stays(owner, tmp_path):
    folder = tmp_path / "search"
    study = open_study(folder)
    trial = study.begin(1)
    files = [tmp_path / "victim.txt", folder / "s.json"]
    for file in files:
        file.write_text("precious")
    trial.set_user_attr("owner", owner.format(folder=tmp_path) if isinstance(owner, str) else owner)
    assert study.begin(1).params == trial.params
    assert [file.read_text() for file in files] == ["precious"] * 2


def test_a_closed_search_leaves_no_file_of_its_process(tmp_path):
    study, other = open_study(tmp_path), open_study(tmp_path)
    trial = study.begin(1)
    assert other.begin(1) is None
    study.close()
    assert len([*tmp_path.glob(".*.owner")]) == 1
    assert other.begin(1).params == trial.params


def test_the_best_different_settings_are_ranked_by_the_mean_of_their_seeds(tmp_path):
    study = open_study(tmp_path, space=parse_space("augment=[none, flip, 'crop:1', 'crop:2']"))
    values = {"none": 0.9, "flip": 0.8, "crop:1": 0.85, "crop:2": 0.1}
    while len({trial["settings"]["augment"] for trial in write(study)["trials"]}) < 4:
        trial = study.begin(100)
        study.end(trial, values[trial.params["augment"]])
    assert [trial.settings["augment"] for trial in study.best()] == ["none", "crop:1", "flip"]
    numbers = {trial.settings["augment"]: trial.number for trial in study.best()}
    for seed in (1, 2):
        study.repeat(numbers["none"], seed, 0.6)
        study.repeat(numbers["flip"], seed, 0.8)
        study.repeat(numbers["crop:1"], seed, None if seed == 2 else 0.99)
    search = write(study)
    # A training that diverged makes its settings the last.
    assert [trial["settings"]["augment"] for trial in search["best"]] == ["flip", "none", "crop:1"]
    assert search["best"][0]["values"] == {"0": 0.8, "1": 0.8, "2": 0.8}
    assert search["best"][2]["values"] == {"0": 0.85, "1": 0.99, "2": None}
    assert (tmp_path / "s.ini").read_text() == search["settings_file"] == "{'augment': 'flip'}"


def test_the_least_loss_is_the_best(tmp_path):
    study = open_study(tmp_path, "validation_loss")
    losses = [1.5, 0.5, 1.0]
    numbers = [finish(study, loss) for loss in losses]
    assert [trial.number for trial in study.best()] == [numbers[1], numbers[2], numbers[0]]


def test_a_trial_without_a_value_has_failed_and_is_not_tried_again(study):
    assert finish(study, None, requested=1) == 0
    assert study.begin(1) is None
    (trial,) = write(study)["trials"]
    assert (trial["state"], trial["values"]) == ("failed", {"0": None})
    assert study.best() == []
    assert (study.folder / "s.ini").read_text() == ""


def test_a_trial_below_the_median_is_pruned_after_the_first_epoch(study):
    for _ in range(5):
        trial = study.begin(100)
        for epoch in (1, 2, 3):
            trial.report(0.5 + epoch / 10, epoch)
            assert not trial.should_prune()
        study.end(trial, 0.8)
    bad, good = study.begin(100), study.begin(100)
    for trial, value in ((bad, 0.1), (good, 0.9)):
        trial.report(value, 1)
        assert not trial.should_prune()
        trial.report(value, 2)
    assert [bad.should_prune(), good.should_prune()] == [True, False]
    study.end(bad, None, is_pruned=True)
    pruned = write(study)["trials"][bad.number]
    assert (pruned["state"], pruned["epochs"], pruned["values"]) == ("pruned", 2, {"0": 0.1})
    assert bad.number not in [trial.number for trial in study.best()]


def test_importances_need_enough_finished_trials(study):
    import math

    for count in range(1, 16):
        trial = study.begin(100)
        study.end(trial, -abs(math.log10(trial.params["learning_rate"]) + 2))
        importances = write(study)["importances"]
        assert bool(importances) == (count == 15)
    assert sum(importances.values()) == pytest.approx(1)
    assert importances["learning_rate"] > importances["augment"]


def test_equal_values_have_no_importances(study):
    for _ in range(15):
        finish(study, 0.5)
    assert write(study)["importances"] == {}
    finish(study, 0.6)
    assert write(study)["importances"]


def test_a_journal_of_another_program_is_refused_and_kept(tmp_path):
    (tmp_path / "s.journal").write_text("something else\nand more\n")
    with pytest.raises(DamagedArtifactError, match=r"s\.journal: expected a journal of Optuna"):
        open_study(tmp_path)
    assert (tmp_path / "s.journal").read_text() == "something else\nand more\n"


@pytest.mark.parametrize(
    "line",
    ["null", "[]", "7", '"text"', '{"op_code":99,"worker_id":"x"}', '{"op_code":0}', "[" * 100_000, "\0", "{}"],
)
def test_any_other_line_at_the_start_of_a_journal_is_refused(line, tmp_path):
    (tmp_path / "s.journal").write_text(f"{line}\n")
    with pytest.raises(DamagedArtifactError, match=r"Remove it\. The search then begins again"):
        open_study(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"learning_rate"', '"unknown_setting"'),
        ('"values":[0.5]', '"values":["high"]'),
        ('"values":[0.5]', '"values":null'),
        ('"user_attr":{"repeats 0":{"1":0.5}}', '"user_attr":{"repeats 0":[1]}'),
        ('"user_attr":{"owner":', '"user_attr":{"instead_of":[],"x":'),
        ('"user_attr":{"owner":', '"user_attr":{"instead_of":['),
    ],
)
def test_trials_that_no_search_wrote_are_refused(old, new, tmp_path):
    study = open_study(tmp_path)
    number = finish(study, 0.5)
    study.repeat(number, 1, 0.5)
    assert open_study(tmp_path).best()
    text = (tmp_path / "s.journal").read_text()
    assert old in text
    (tmp_path / "s.journal").write_text(text.replace(old, new))
    with pytest.raises(DamagedArtifactError, match=r"s\.journal: expected a journal of Optuna"):
        open_study(tmp_path)
