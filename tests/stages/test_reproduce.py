"""The command that repeats a run: it has the settings of the run, whatever config.ini says by then."""

import shlex
from contextlib import contextmanager

import pytest
from luigi.task_register import Register

from pipeline.runs.record import Origin
from tasks import config_files
from tasks.settings import in_force
from tasks.stage import stages_up_to
from tasks.train import Train


@contextmanager
def train_of(flags, root):
    """The Train stage of a command line, as in a process of its own."""
    Register.clear_instance_cache()
    with in_force(["--module", "tasks", "Report", *flags, "--Storage-root", str(root)]):
        yield Train()


def settings_of_stages(train):
    return train.experiment_name(), [stage.settings for stage in stages_up_to(train)]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--Train-epochs", "2", "--Train-seed=3"),
        ("--Train-augment", "crop:4, flip", "--Train-learning-rate=0.05", "--Train-jit-compile", "false"),
        ("--Source-dataset=folder", "--Source-path=/data/my 'best' photographs; $(touch x)"),
        ("--Train-freeze", "conv_.*|dense%d", "--Experiment-name", "flowers"),
        ("--Records-runner-options=--direct_num_workers=2", "--Records-validation-share=0.1", "--Train-keep=best"),
        ("--Train-device", "cpu", "--Train-replicas", "2", "--Train-on-mismatch", "skip"),
    ],
)
def test_the_command_has_the_settings_of_the_run(flags, tmp_path):
    with train_of(flags, tmp_path) as train:
        origin, expected = train.origin(), settings_of_stages(train)
    program, command, *repeated = shlex.split(Origin.model_validate_json(origin.model_dump_json()).command())
    assert (program, command) == ("tensorcraft", "run")
    with train_of(repeated, tmp_path) as train:
        assert settings_of_stages(train) == expected


def test_the_command_has_only_settings_that_differ_from_their_defaults(tmp_path):
    with train_of(["--Train-epochs=auto", "--Train-seed=3"], tmp_path) as train:
        assert train.origin().command() == "tensorcraft run --Train-seed=3"


def test_the_command_restores_a_default_that_config_ini_overrides(tmp_path, monkeypatch):
    (tmp_path / "config.ini").write_text("[Train]\nepochs = 30\nseed = 7\n")
    monkeypatch.setattr(config_files, "existing", lambda name: [tmp_path / name])
    with train_of(["--Train-epochs=5"], tmp_path) as train:
        assert train.origin().command() == "tensorcraft run --Train-epochs=5 --Train-seed=0"


def test_the_command_has_no_password(tmp_path):
    with train_of(["--Records-runner-options=--flink_master=https://me:p@ss@flink:8081"], tmp_path) as train:
        assert "p@ss" not in train.origin().command()


def test_the_origin_has_commit_and_version_of_the_project(tmp_path, monkeypatch):
    from pipeline.runs import record

    monkeypatch.setattr(record, "git_state", lambda folder: ("c" * 40, folder != config_files.project_folder()))
    with train_of([], tmp_path) as train:
        found = train.origin()
    assert (found.commit, found.is_dirty, found.settings) == ("c" * 40, False, {})
    assert found.version
