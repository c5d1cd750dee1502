"""The origin of a run: commit and changes of the project's folder, without git's hooks, and whatever git does."""

import json
import subprocess
from datetime import datetime

import pytest

from pipeline.runs import record
from pipeline.runs.record import Origin, git_state, names

IDENTITY = ("-c", "user.name=Test", "-c", "user.email=test@localhost")


def git(folder, *arguments):
    command = ["git", *IDENTITY, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A work tree with one commit of one file."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "config.ini").write_text("[Train]\n")
    git(tmp_path, "add", "config.ini")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_commit_of_a_work_tree(tree):
    assert git_state(tree) == (git(tree, "rev-parse", "HEAD"), False)


def test_a_subfolder_has_the_commit_of_its_work_tree(tree):
    (tree / "flowers").mkdir()
    assert git_state(tree / "flowers") == (git(tree, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_changed_file_makes_the_work_tree_dirty(tree, is_staged):
    (tree / "config.ini").write_text("[Train]\nepochs = 3\n")
    if is_staged:
        git(tree, "add", "config.ini")
    assert git_state(tree)[1] is True


def test_an_untracked_file_does_not_make_it_dirty(tree):
    (tree / "notes.txt").write_text("x")
    assert git_state(tree)[1] is False


def test_a_work_tree_without_commits_has_no_commit(tmp_path):
    git(tmp_path, "init", "--quiet")
    assert git_state(tmp_path) == (None, False)


def test_a_folder_outside_git_has_no_commit(tmp_path, monkeypatch):
    # The test's own folder may be in a work tree.
    monkeypatch.setenv("HOME", str(tmp_path))
    if subprocess.run(["git", "rev-parse"], cwd=tmp_path, capture_output=True, check=False).returncode == 0:
        pytest.skip("the temporary folder is in a work tree")
    assert git_state(tmp_path) == (None, None)


def test_git_need_not_be_installed(tree, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert git_state(tree) == (None, None)


def test_variables_of_git_do_not_select_another_work_tree(tree, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    commit = git(tree, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert git_state(tree)[0] == commit


def test_no_monitor_of_the_work_tree_runs(tree):
    monitor = tree / ".git" / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tree}/.git/was-run\n")
    monitor.chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(monitor))
    git_state(tree)
    assert not (tree / ".git" / "was-run").exists()


def test_a_slow_git_is_given_up(tree, tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("bin")
    (folder / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(record, "_GIT_SECONDS", 0.2)
    started = datetime.now()
    assert git_state(tree) == (None, None)
    assert (datetime.now() - started).total_seconds() < 300


def test_the_origin_separates_neither_rows_nor_comparable_runs():
    added = {"origin", "num_parameters", "num_trainable_parameters", "model_bytes"}
    assert added.isdisjoint({*names(compared=True), *names(repeated=False), *names("setting", "hardware", "data")})


def test_runs_of_two_commits_share_a_row(make_run):
    from pipeline.report import build_report

    folders = [
        make_run(name, fingerprint=name, seed=seed, origin={"commit": name * 40, "is_dirty": False, "version": "1"})
        for seed, name in enumerate("ab")
    ]
    (row,) = build_report(folders, current=[]).scenarios
    assert len(row.fingerprints) == 2


def test_the_origin_survives_its_file():
    written = Origin(settings={"Train": {"epochs": "3"}}, commit="a" * 40, is_dirty=True, version="0.2.0")
    assert Origin.model_validate_json(json.dumps(written.model_dump())) == written
