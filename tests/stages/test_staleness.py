"""What an edit makes stale, and the reason given: asked of ``make status``, on a copy of the project that is edited."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import in_process
import pytest
import time_machine
from luigi_process import FAST, PROJECT, TINY

from pipeline.artifacts import code_digest, fingerprint
from pipeline.artifacts.fingerprint import differences
from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.errors import HardwareMismatchError
from tasks.stage import Artifact, State, Status

STAGES = ["Source", "Records", "Train", "Report"]


def test_each_kind_of_difference_has_its_words():
    old = {
        "settings": {"epochs": 5, "seed": 0},
        "upstream": {"records": "a" * 64},
        "code": {"pipeline.models": {"<module>": "1", "f": "1", "g": "1"}},
        "packages": {"keras": "3.15.1"},
    }
    new = {
        "settings": {"seed": 0, "epochs": 1},
        "upstream": {"records": "b" * 64},
        "code": {"pipeline.models": {"<module>": "2", "f": "2", "h": "1"}},
        "packages": {"keras": "3.16.0"},
    }
    assert differences(old, old) == []
    assert differences(old, new) == [
        "epochs: 5 → 1",
        "the records changed",
        "pipeline.models changed",
        "pipeline.models.f changed",
        "pipeline.models.g removed",
        "pipeline.models.h added",
        "keras 3.15.1 → 3.16.0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "phrases"),
    [
        ({"current": ["a" * 64]}, {"current": ["a" * 64, "b" * 64]}, ["the requested runs changed"]),
        (
            {"run": "a" * 64, "weights": "a" * 64},
            {"run": "b" * 64, "weights": None},
            ["the run changed", "the weights removed"],
        ),
        ({"records": "a" * 64}, {"records": "a" * 64, "initial_weights": "b" * 64}, ["initial weights added"]),
        ({"runs": {}}, {"runs": {"cnn.a-1": {"run.json": "a" * 64}}}, ["run cnn.a-1 added"]),
        (
            {"runs": {"cnn-1": {"run.json": "a" * 64, "metrics.jsonl": "a" * 64}}},
            {"runs": {"cnn-1": {"run.json": "b" * 64, "metrics.jsonl": "b" * 64}}},
            ["run cnn-1 changed"],
        ),
        (
            {"exports": {"cnn-1": "a" * 64}, "published": {}},
            {"exports": {}},
            ["export cnn-1 removed", "published results removed"],
        ),
        ({"searches": {"cnn-1.json": "a" * 64}}, {"searches": {"cnn-1.json": "b" * 64}}, ["search cnn-1.json changed"]),
        (
            {"digest": "a" * 64, "num_examples": {"train": 9}, "skipped": {}},
            {"digest": "b" * 64, "num_examples": {"train": 7, "test": 2}, "skipped": {"truncated": 3}},
            [
                "the data changed",
                "test examples: none → 2",
                "train examples: 9 → 7",
                "skipped files (truncated): none → 3",
            ],
        ),
        ({"num_examples": {"train": 9}}, {"num_examples": {"train": 10}}, ["train examples: 9 → 10"]),
        (
            {"features": {"image": {"shape": [28, 28, 1]}}},
            {"features": {"image": {"shape": [32, 32, 3]}}},
            ["feature image changed"],
        ),
        (
            {"bytes_per_example": 9, "value_range": [0, 9]},
            {"bytes_per_example": 8, "value_range": [0, 8]},
            ["bytes per example: 9 → 8", "value range: 0, 9 → 0, 8"],
        ),
    ],
)
def test_a_changed_input_has_a_short_phrase_without_digests(old, new, phrases):
    assert differences({"upstream": old}, {"upstream": new}) == phrases


def test_an_empty_setting_is_shown_as_none():
    assert differences({"settings": {"augment": ""}}, {"settings": {"augment": "flip"}}) == ["augment: none → flip"]
    old, new = ({"settings": {"learning_rate": rate}} for rate in (-1.0, 0.6148))
    assert differences(old, new) == ["learning_rate: recipe → 0.6148"]


def test_a_list_of_the_manifest_equals_the_tuple_of_a_setting_and_both_look_the_same():
    old = {"settings": {"formats": ["onnx", "litert"]}}
    assert differences(old, {"settings": {"formats": ("onnx", "litert")}}) == []
    assert differences(old, {"settings": {"formats": ("onnx",)}}) == ["formats: onnx, litert → onnx"]


def test_control_characters_of_the_data_reach_neither_terminal_nor_log():
    """A text's vocabulary is its characters, of which some are orders to a terminal."""
    old, new = ({"upstream": {"label_names": list(names)}} for names in ("\a\n\x1b[", "ab\0\u202e"))
    assert differences(old, new) == [r"labels: \x07, \n, \x1b, [ → a, b, \x00, \u202e"]
    old, new = ({"upstream": {"runs": runs}} for runs in ({}, {"cnn\x1b[2J": {"run.json": "a" * 64}}))
    assert differences(old, new) == [r"run cnn\x1b[2J added"]


def test_a_reason_is_one_line_whatever_file_it_names():
    assert str(Status(State.STALE, ("two\nlines.png: new", "not\udcffUTF-8.png: new"))) == (
        r"stale: two\nlines.png: new; not\udcffUTF-8.png: new"
    )


def test_a_line_of_the_log_has_the_number_of_all_reasons_it_omits():
    files = tuple(f"{number}.png was added" for number in range(1, 6))
    assert str(Status(State.STALE, (*files, "and 15 more"))).endswith("5.png was added; and 15 more")
    assert str(Status(State.STALE, (*files, *files))).endswith("5.png was added; and 5 more, see tensorcraft status")


@pytest.mark.parametrize(
    ("experiment", "expected"),
    # Of those that differ in one thing the newest with the same inputs, and none of another experiment.
    [
        ("cifar10", "stale: epochs: 3 → 4; compared with runs/run-0"),
        ("mnist", "stale: epochs: 9 → 4; seed: 9 → 0"),
        ("text", "new"),
    ],
)
def test_a_new_artifact_is_compared_with_the_nearest_of_its_experiment(tmp_path, experiment, expected):
    for number, (epochs, seed, records, name, created_at) in enumerate(
        (
            (3, 0, "a", "cifar10", "2026-01-03"),
            (1, 0, "a", "cifar10", "2026-01-01"),
            (4, 0, "b", "cifar10", "2026-01-05"),
            (7, 7, "a", "cifar10", "2026-01-07"),
            (9, 9, "a", "mnist", "2026-01-09"),
        )
    ):
        folder = tmp_path / "runs" / f"run-{number}"
        folder.mkdir(parents=True)
        identity = {"settings": {"epochs": epochs, "seed": seed}, "upstream": {"records": records * 64}}
        with time_machine.travel(created_at, tick=False):
            write_manifest(folder, stage="Train", identity=identity, details={"experiment": name})
    identity = {"settings": {"epochs": 4, "seed": 0}, "upstream": {"records": "a" * 64}}
    missing = Artifact(tmp_path / "runs" / "run-5", identity, experiment=experiment)
    assert str(missing.status()) == expected


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def stale_stages(status: dict[str, dict]) -> dict[str, str]:
    """Stage → reasons, of those that are not fresh."""
    assert list(status) == STAGES
    return {name: "; ".join(entry["reasons"]) for name, entry in status.items() if entry["state"] != "fresh"}


class Project:
    """A copy of the project's code that is edited, and what ``make status`` says then of a root of the original."""

    def __init__(self, folder: Path, luigi) -> None:
        self.folder, self.luigi = folder, luigi
        for name in ("pipeline", "tasks", "experiments"):
            shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "config.ini", folder)

    @contextlib.contextmanager
    def edited(self, name: str, old: str, new: str) -> Iterator[None]:
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            path.write_text(text)

    def stale(self, *args: str) -> dict[str, str]:
        """Stage → reasons, of those that are not fresh, where the code of the copy is what is digested."""
        module_path = code_digest.module_path

        def in_the_copy(module: str) -> Path | None:
            path = module_path(module)
            is_ours = path and path.is_relative_to(PROJECT)
            return self.folder / path.relative_to(PROJECT) if is_ours else path

        with mock.patch.object(code_digest, "module_path", in_the_copy):
            code_digest.read_module.cache_clear()
            try:
                return stale_stages(self.luigi.status(*FAST, *args))
            finally:
                code_digest.read_module.cache_clear()

    def stale_in_its_process(self) -> dict[str, str]:
        """The same, asked of a process that runs the copy."""
        command = ("-m", "tasks", "status", "--json", *FAST)
        done = self.luigi.python(*command, cwd=self.folder, PYTHONPATH=str(self.folder))
        assert done.returncode == 0, done.stderr
        return stale_stages(json.loads(done.stdout))


@pytest.fixture(scope="module")
def project(tmp_path_factory, first_run):
    return Project(tmp_path_factory.mktemp("project"), first_run)


def test_a_touched_copy_is_fresh_and_an_edit_is_detected_by_a_new_process(project):
    for path in project.folder.rglob("*.py"):
        os.utime(path, (1, 1))
    assert project.stale() == {}
    with project.edited("pipeline/shards/plan.py", "digest_size=8", "digest_size=7"):
        stale = project.stale_in_its_process()
        assert stale == project.stale()
    assert list(stale) == STAGES[1:]


def test_comments_and_docstrings_make_nothing_stale(project):
    with (
        project.edited(
            "pipeline/models/baseline_cnn.py", '"""Build the baseline CNN', '# A comment.\n    """A network'
        ),
        project.edited("pipeline/shards/plan.py", "def shard_bounds(", "# Why not.\ndef shard_bounds("),
    ):
        assert project.stale() == {}


def test_a_setting_makes_stale_what_depends_on_it(first_run):
    for args, stages, reason in (
        (["--Train-epochs", "2"], ["Train", "Report"], "epochs: 1 → 2"),
        (["--Train-seed", "1"], ["Train", "Report"], "seed: 0 → 1"),
        (["--Train-training-recipe", "baseline"], ["Train", "Report"], "training_recipe: onecycle → baseline"),
        (["--Train-precision", "float32"], ["Train", "Report"], "precision: auto → float32"),
        (["--Train-global-batch-size", "32"], ["Train", "Report"], "global_batch_size: 64 → 32"),
        (["--Train-freeze", "conv_1"], ["Train", "Report"], "freeze: none → conv_1"),
        (["--Records-train-shards", "4"], ["Records", "Train", "Report"], "train_shards: 3 → 4"),
        (["--Records-seed", "1"], ["Records", "Train", "Report"], "seed: 0 → 1"),
        (["--Records-runner-options=--direct_num_workers=2", "--Records-runner", "DirectRunner"], [], ""),
        (["--Source-tfds-data-dir", "/elsewhere"], [], ""),
        (["--Train-profile-steps", "3"], [], ""),
        # The device was there.
        (["--Train-on-mismatch", "skip"], [], ""),
        (["--Train-on-mismatch", "fallback"], [], ""),
    ):
        stale = stale_stages(first_run.status(*FAST, *args))
        assert list(stale) == stages, args
        assert not stages or reason in stale[stages[0]]


def test_an_evaluation_setting_evaluates_the_published_weights(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (run,) = (luigi.root / "runs").iterdir()
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    flipped = [*FAST, "--Train-test-time-augmentation", "flip"]
    assert luigi.status(*flipped)["Train"] == {
        "state": "stale",
        "reasons": ["test_time_augmentation: none → flip, which needs a new evaluation only"],
        "remote": "",
    }
    done = luigi(*flipped)
    assert done.returncode == 0, done.stderr
    assert "Train: reevaluated in" in done.stderr
    assert "Epoch 1/1" not in done.stderr
    after = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"run.json", "manifest.json", "verified.json"}
    record = json.loads(after["run.json"])
    assert (record["test_time_augmentation"], record["test_tta_accuracy"] is None) == ("flip", False)
    assert luigi.report()["runs"][0]["test_tta_accuracy"] == record["test_tta_accuracy"]
    assert stale_stages(luigi.status(*flipped)) == {}
    assert luigi(*FAST).returncode == 0
    assert json.loads((run / "run.json").read_text()) == json.loads(before["run.json"])


def test_an_interrupted_training_says_so_and_resumes(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    # The checkpoint that epoch 3 of 5 leaves, by what is read of it before any work.
    five = ["--Train-epochs", "5", *FAST[2:]]
    manifest = read_manifest(next((luigi.root / "runs").iterdir()))
    identity = {**manifest["identity"], "settings": manifest["identity"]["settings"] | {"epochs": 5}}
    run = fingerprint.fingerprint(identity)
    folder = luigi.root / "checkpoints" / f"baseline_cnn-{run[:12]}" / "epoch-000003"
    folder.mkdir(parents=True)
    write_manifest(folder, stage="checkpoint", identity={"run": run, "epoch": 3}, details={})
    said = "interrupted after epoch 3 of 5, resuming from the checkpoint"
    assert luigi.status(*five)["Train"] == {"state": "stale", "reasons": [said], "remote": ""}
    assert luigi.status("--Train-epochs", "6", *FAST[2:])["Train"]["reasons"] == ["epochs: 1 → 6"]


def test_a_finished_run_with_a_checkpoint_keeps_its_own_reason(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    run = next((luigi.root / "runs").iterdir())
    folder = luigi.root / "checkpoints" / run.name / "epoch-000001"
    folder.mkdir(parents=True)
    identity = {"run": read_manifest(run)["fingerprint"], "epoch": 1}
    write_manifest(folder, stage="checkpoint", identity=identity, details={})
    reasons = luigi.status(*FAST, "--Train-test-time-augmentation", "flip")["Train"]["reasons"]
    assert reasons == ["test_time_augmentation: none → flip, which needs a new evaluation only"]


def test_an_edit_makes_stale_the_stages_that_run_it(project):
    for name, old, new, stages, reason in (
        ("pipeline/models/baseline_cnn.py", "Dropout(0.3", "Dropout(0.31", STAGES[2:], ".baseline_cnn changed"),
        ("pipeline/problems/results.py", "draw=1", "draw=2", STAGES[3:], "problems.results"),
        ("pipeline/shards/plan.py", "digest_size=8", "digest_size=7", STAGES[1:], "plan.example_order changed"),
        ("pipeline/report/sections/summary.py", ' skipped"', ' left out"', STAGES[3:], "summary.verdict"),
        ("pipeline/report/templates/model-card.md.j2", "#", "##", STAGES[3:], "templates/model-card.md.j2 changed"),
        ("pipeline/artifacts/manifest.py", "indent=1", "indent=2", [], ""),
        ("pipeline/predict/rows.py", "_BATCH = 64", "_BATCH = 32", [], ""),
    ):
        with project.edited(name, old, new):
            stale = project.stale()
        assert list(stale) == stages, name
        assert not stages or reason in stale[stages[0]]


@pytest.mark.slow
def test_a_fallback_run_is_kept_while_the_device_is_absent_and_replaced_when_it_is_there(
    first_run, tmp_path, monkeypatch
):
    luigi = first_run.copy(tmp_path)
    tpu = tmp_path / "tpu"
    env = {"PYTHONPATH": str(PROJECT / "tests" / "fake_tpu"), "FAKE_TPU": str(tpu)}
    settings = ["--Train-device", "tpu", "--Train-jit-compile", "false", *TINY]

    def answer(_: str, arguments: object, **__: object) -> None:
        """The answer of the process that looks for the device, without importing TensorFlow each time."""
        if arguments and not tpu.exists():
            raise HardwareMismatchError("[Train] device: tpu was requested.", {"device": "tpu"})

    def trained(on_mismatch):
        return luigi(*FAST, *settings, "--Train-on-mismatch", on_mismatch, **env)

    def pipeline(on_mismatch, *more):
        with monkeypatch.context() as patch:
            patch.setattr("tasks.train.in_child", answer)
            return luigi.here("tasks", "Report", *FAST, *settings, "--Train-on-mismatch", on_mismatch, *more)

    def train(on_mismatch):
        with monkeypatch.context() as patch:
            patch.setattr("tasks.train.in_child", answer)
            return luigi.status(*FAST, *settings, "--Train-on-mismatch", on_mismatch)["Train"]

    def runs():
        found = (json.loads(path.read_text()) for path in luigi.root.glob("runs/*/run.json"))
        return [(run["effective_device"], run["finished_at"]) for run in found if run["requested_device"] == "tpu"]

    done = trained("fallback")
    assert done.returncode == 0, done.stderr
    fallback = runs()
    assert [device for device, _ in fallback] == ["cpu"]

    # Still absent: asked for again, reused where a fallback is wanted, and no answer where it is not.
    done = pipeline("fallback")
    assert done.returncode == 0, done.stderr
    assert "checking for a TPU" in done.stderr
    assert "Nothing to do" in done.stderr
    done = pipeline("fail")
    assert done.returncode == 7
    assert "ERROR HardwareMismatchError: [Train] device: tpu was requested." in done.stderr
    assert runs() == fallback
    # A row without figures is no reason to lose a run.
    assert train("skip")["state"] == "fresh"
    done = pipeline("skip")
    assert done.returncode == 0, done.stderr
    assert runs() == fallback
    done = pipeline("skip", "--Force-stage", "Train")
    assert done.returncode == 7
    assert "The existing run is kept (trained on cpu because tpu was unavailable)" in done.stderr
    assert runs() == fallback

    tpu.touch()
    reason = "trained on cpu because tpu was unavailable, and tpu is available now"
    assert train("fallback") == {"state": "stale", "reasons": [reason], "remote": ""}
    done = trained("fallback")
    assert done.returncode == 0, done.stderr
    assert reason in done.stderr
    on_tpu = runs()
    assert [device for device, _ in on_tpu] == ["tpu"]

    # What was trained on the device stays a run of it, whatever is asked for where there is none; nothing is asked.
    tpu.unlink()
    for on_mismatch in ("fail", "fallback", "skip"):
        assert train(on_mismatch)["state"] == "fresh"
    done = pipeline("skip")
    assert done.returncode == 0, done.stderr
    assert "is there a" not in done.stderr
    assert "Nothing to do" in done.stderr
    assert runs() == on_tpu


def test_a_forced_stage_is_made_again_with_all_after_it(first_run):
    for number, stage in enumerate(STAGES):
        status = first_run.status(*FAST, "--Force-stage", stage)
        assert [name for name, entry in status.items() if entry["state"] == "stale"] == STAGES[number:]
        assert status[stage]["reasons"] == [f"requested by [Force] stage = {stage}"]


def test_a_new_version_of_a_library_makes_stale_what_it_shapes(first_run, tmp_path):
    # What importlib.metadata finds first counts: a newer Keras installed in front of the real one.
    info = tmp_path / "keras-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 9.9.9\n")
    stale = stale_stages(first_run.status(*FAST, cwd=tmp_path))
    assert list(stale) == ["Train", "Report"]
    assert "keras 3." in stale["Train"]
    assert "→ 9.9.9" in stale["Train"]


def test_damage_is_named(first_run, tmp_path):
    for number, (pattern, damage, stages) in enumerate(
        (
            ("records/*/*-train.tfrecord-00001-*", lambda path: path.unlink(), ["Records"]),
            ("records/*/*-train.tfrecord-00001-*", lambda path: path.write_bytes(path.read_bytes()[:-1]), ["Records"]),
            ("records/*/*-train.tfrecord-00001-*", flip_bit, ["Records"]),
            ("runs/*/weights.safetensors", lambda path: path.write_bytes(b""), ["Train", "Report"]),
            ("runs/*/metrics.jsonl", lambda path: path.unlink(), ["Train", "Report"]),
            ("report/report.html", lambda path: path.unlink(), ["Report"]),
        )
    ):
        luigi = first_run.copy(tmp_path / str(number))
        (path,) = luigi.root.glob(pattern)
        damage(path)
        status = luigi.status(*FAST)
        assert [name for name, entry in status.items() if entry["state"] != "fresh"] == stages
        assert status[stages[0]]["state"] == "damaged"
        assert path.name in status[stages[0]]["reasons"][0]


def test_an_unexpected_file_is_named_and_makes_nothing_stale(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (records,) = luigi.root.glob("records/*")
    note = records / ".DS_Store"
    note.write_text("mine")
    done = luigi.command("status", *FAST)
    assert [line.split() for line in done.stdout.splitlines()] == [[name, "fresh"] for name in STAGES]
    assert f"{note}: ignored, because the manifest does not list this file" in done.stderr
    assert luigi.here("tasks", "Report", *FAST).returncode == 0
    assert note.read_text() == "mine"


def test_a_folder_of_a_run_that_may_not_be_entered_is_named_and_ends_nothing(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (folder,) = luigi.root.glob("runs/*/tensorboard")
    folder.chmod(0)
    with in_process.without_privileges():
        status = luigi.command("status", *FAST)
    assert (status.returncode, status.stdout.splitlines()[2].split()[1]) == (0, "unreadable"), status
    assert f"{folder}" in status.stdout
    assert "Traceback" not in status.stderr


def test_an_unreadable_artifact_is_named_with_the_remedy_and_not_rebuilt(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    for pattern in ("records/*/*-train.tfrecord-00001-*", "records/*/manifest.json", "records/*"):
        (path,) = luigi.root.glob(pattern)
        mode = path.stat().st_mode
        path.chmod(0)
        with in_process.without_privileges():
            status, run = luigi.command("status", *FAST), luigi.here("tasks", "Report", *FAST)
        assert status.returncode == 0, status.stderr
        assert [line.split()[1] for line in status.stdout.splitlines()] == ["fresh", "unreadable", "fresh", "fresh"]
        assert run.returncode == 6, run.stderr
        for said in (status.stdout, run.stderr):
            assert f"{path}" in said
            assert "chmod u+rwX" in said
        assert "Traceback" not in status.stderr + run.stderr
        assert path.stat().st_mode & 0o777 == 0, "it was replaced"
        path.chmod(mode)


def test_asking_changes_nothing_and_imports_nothing_heavy(first_run):
    before = {path: path.stat().st_mtime_ns for path in first_run.root.rglob("*")}
    code = (
        "import sys; from tasks import __main__ as cli; sys.argv.insert(1, 'status')\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'tensorflow', 'apache_beam', 'numpy'} & sys.modules.keys()"
    )
    done = first_run.python("-c", code, *FAST)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[name, "fresh"] for name in STAGES]
    assert {path: path.stat().st_mtime_ns for path in first_run.root.rglob("*")} == before


def test_the_pipeline_says_why_it_reruns(first_run, tmp_path):
    luigi = first_run.copy(tmp_path)
    (luigi.root / "report" / "report.md").write_text("mine")
    done = luigi.here("tasks", "Report", *FAST)
    assert done.returncode == 0
    assert "Report: building report (damaged: " in done.stderr
    assert "report.md: expected " in done.stderr
    assert "tensorcraft run" not in done.stderr, "it is running"
    assert "Train" not in done.stderr


def test_a_dataset_prepared_again_with_other_bytes_makes_the_source_stale(first_run, write_tiny_tfds, tmp_path):
    luigi = first_run.copy(tmp_path / "other")
    assert luigi.status(*FAST)["Source"]["state"] == "fresh"
    luigi.data_dir = write_tiny_tfds(tmp_path / "tfds", first=1_000)
    source = luigi.status(*FAST)["Source"]
    assert (source["state"], source["reasons"]) == (
        "stale", [f"{tmp_path / 'tfds' / 'cifar10' / '3.0.2'} has changed"]
    )  # fmt: skip
