"""The DAG as users run it, on a small prepared cifar10: Luigi in a process of its own where it trains or forks."""

import fcntl
import functools
import json
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from luigi.cmdline_parser import CmdlineParser
from luigi_process import FAST, PROJECT, TINY, Luigi

from pipeline.errors import StorageError
from pipeline.runs.record import STAGE_PHASES
from tasks.settings import root_folder
from tasks.stage import Stage
from tasks.train import Train


@pytest.fixture(scope="module")
def luigi(first_run, tmp_path_factory):
    """A root of this module's own on which the whole pipeline has run once."""
    return first_run.copy(tmp_path_factory.mktemp("dag"))


def test_a_run_leaves_records_a_run_and_a_report(luigi):
    (records,) = luigi.artifacts("records")
    assert records.startswith("cifar10-")
    (run,) = luigi.report()["runs"]
    assert run["requested_dataset"] == run["dataset"] == "cifar10"
    assert run["dataset_verified"] is False, "403 images of ours must not pass for CIFAR-10"
    assert run["effective_device"] in ("cpu", "gpu", "tpu")
    for name in ("report.html", "report.md", "report.json"):
        assert (luigi.root / "report" / name).is_file()
    assert not list(luigi.root.glob("*/.*")), "unfinished work was left behind"


def test_a_run_records_its_origin_and_the_size_of_its_model(luigi):
    from pipeline.runs.load_model import load_trained

    (run,) = luigi.artifacts("runs")
    folder = luigi.root / "runs" / run
    trained = load_trained(folder)
    model, record = trained.model, trained.record
    assert record.model_bytes == (folder / "model.keras").stat().st_size
    assert record.num_parameters == model.count_params()
    assert record.num_trainable_parameters == sum(weight.numpy().size for weight in model.trainable_weights)
    assert record.origin.version
    assert record.origin.command().startswith("tensorcraft run --")
    identity = json.loads((folder / "manifest.json").read_text())["identity"]
    assert not {"commit", "origin", "version"} & {*identity, *identity["settings"]}


def test_the_report_links_to_the_files_of_the_run(luigi):
    (run,) = luigi.artifacts("runs")
    links = re.findall(r'<a href="(\.\./[^"]*)"', (luigi.root / "report" / "report.html").read_text())
    names = ("", "model.keras", "metrics.jsonl", "tensorboard")
    assert links == [f"../runs/{run}/{name}" for name in names]
    assert all((luigi.root / "report" / link).exists() for link in links)


def test_the_parts_of_a_training_add_up_to_the_wall_time_of_its_stage(luigi):
    (run,) = luigi.artifacts("runs")
    folder = luigi.root / "runs" / run
    seconds = json.loads((folder / "manifest.json").read_text())["seconds"]
    parts = json.loads((folder / "run.json").read_text())["time_breakdown"]
    total = sum(parts[f"{part}_seconds"] for part in STAGE_PHASES)
    # On a busy machine, what is between the parts takes longer too.
    assert 0.75 * seconds < total < 1.01 * seconds + 0.1, "imports included"


def test_a_second_run_does_nothing_and_says_so_from_another_folder_too(luigi, tmp_path):
    before = {kind: luigi.artifacts(kind) for kind in ("source", "records", "runs")}
    for cwd in (PROJECT, tmp_path):
        done = luigi(*FAST, cwd=cwd)
        assert done.returncode == 0
        assert "Nothing to do" in done.stderr
        assert {kind: luigi.artifacts(kind) for kind in before} == before


def test_the_bare_command_works(luigi):
    done = luigi(*FAST, command=(str(Path(sys.executable).with_name("luigi")), "--module", "tasks"))
    assert done.returncode == 0
    assert "Nothing to do" in done.stderr


def test_workers_and_a_copy_elsewhere_make_nothing_stale(luigi, tmp_path):
    done = luigi.copy(tmp_path).here("tasks", "Report", *FAST, "--Records-runner-options=--direct_num_workers=2")
    assert "Nothing to do" in done.stderr


@pytest.mark.slow
def test_changed_settings_rerun_the_stages_from_theirs_on(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    before = other.artifacts("records")
    done = other(*FAST[2:], "--Train-epochs", "2", *TINY)
    assert done.returncode == 0, done.stderr
    assert other.artifacts("records") == before
    assert len(other.artifacts("runs")) == 2
    report = other.report()
    assert {run["epochs"] for run in report["runs"]} == {1, 2}
    assert report["current"] == [run["fingerprint"] for run in report["runs"] if run["epochs"] == 2]
    sources = other.artifacts("source")
    done = other(*FAST[:-1], "2", *TINY)
    assert done.returncode == 0, done.stderr
    assert other.artifacts("source") == sources
    assert len(other.artifacts("records")) == 2
    assert len(other.artifacts("runs")) == 3


def test_a_failed_gate_ends_with_its_own_code_after_the_report_is_written_until_it_passes(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    demanding = [*FAST, "--Report-min-test-accuracy", "1.0"]
    for _ in range(2):
        done = other.here("tasks", "Report", *demanding)
        assert done.returncode == 9, done.stderr
        assert "accuracy of run" in done.stderr
        assert "Traceback" not in done.stderr
        assert other.report()["gate"]["passed"] is False
    assert other.status(*demanding)["Report"]["reasons"][0].startswith("thresholds not reached. Test accuracy")
    assert other.here("tasks", "Report", *FAST, "--Report-min-test-accuracy", "0.01").returncode == 0
    assert other.report()["gate"]["passed"] is True


def test_every_run_is_in_the_history_once(luigi):
    fingerprints = [json.loads(line)["fingerprint"] for line in (luigi.root / "history.jsonl").open()]
    assert len(fingerprints) == len(set(fingerprints))
    assert set(fingerprints) >= {run["fingerprint"] for run in luigi.report()["runs"]}


@pytest.mark.slow
def test_a_damaged_shard_is_rebuilt_and_nothing_retrained(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    shard = next(other.root.glob("records/*/cifar10-train.tfrecord-00001-of-00003"))
    whole = shard.read_bytes()
    # One bit, the size as it was.
    shard.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    runs = other.artifacts("runs")
    done = other(*FAST)
    assert done.returncode == 0, done.stderr
    assert f"{shard.name}: expected " in done.stderr
    assert shard.read_bytes() == whole
    assert other.artifacts("runs") == runs


def test_a_bad_setting_is_refused_before_any_work(tmp_path, tiny_tfds):
    """As Luigi parses them; tests/test_config.py has what the settings themselves refuse."""
    luigi = Luigi(tmp_path, tiny_tfds)
    for args, config, named in (
        (["--Train-epochs", "many"], "", "[Train] epochs: expected an integer, got 'many'"),
        (["--Storage-root", ""], "", "[Storage] root: expected a folder on this machine, got ''"),
        (
            ["--Train-replicas", "3", "--Train-global-batch-size", "128"],
            "",
            "[Train] global_batch_size: expected a multiple of the 3 replicas",
        ),
        (
            ["--Train-device", "gpu", "--Train-replicas", "2", "--Train-on-mismatch", "skip"],
            "",
            "SettingsError: [Train] replicas: expected 1 on gpu",
        ),
        (["--Train-on-mismatch", "ignore"], "", "[Train] on_mismatch: expected one of fail, fallback, skip"),
        (["--Train-training-recipe", "onecycl"], "", "Did you mean 'onecycle'?"),
        (
            ["--Force-stage", "Trian"],
            "",
            "[Force] stage: expected one of Source, Records, Train, Report, nothing",
        ),
        (["--Records-time-limit-seconds", "-1"], "", "[Records] time_limit_seconds"),
        ([], "[Train]\nepoch = 3", "[Train] has no setting 'epoch'. Did you mean 'epochs'?"),
        ([], "[Train]\nglobal-batch-size = 32", "no setting 'global-batch-size'. Did you mean 'global_batch_size'?"),
        ([], "[Train]\ntune = measure", "[Train] has no setting 'tune'"),
        ([], "[Trian]\nepochs = 3", "section [Trian]. Did you mean 'Train'?"),
        (
            ["--seeds", "0;1"],
            "",
            "[Report] seeds: expected a list such as cpu,gpu or [256, 512], got '0;1'",
        ),
        (["--devices", "cpu;gpu"], "", "Change --devices."),
        (
            ["--devices", '["cpu","gqu"]'],
            "",
            "[Report] devices: expected one of auto, cpu, gpu, tpu, got 'gqu'. Did you",
        ),
        (
            ["--global-batch-sizes", "[256,0]"],
            "",
            "[Report] global_batch_sizes: expected auto, or an integer from 1 to 1000000",
        ),
        (["--seeds", "[true]"], "", "[Report] seeds: expected an integer from 0"),
        (
            [],
            "[Report]\nprecisions = [[]]",
            "[Report] precisions: expected a list such as cpu,gpu or [256, 512], got '[[]]'",
        ),
        (["--Source-dataset", "cifar1O"], "", "[Source] dataset"),
        # Known only to TFDS.
        (["--Source-dataset", "cifar11"], "", "Did you mean 'cifar10"),
        (["--Source-dataset", "coco"], "", "coco: expected a uint8 Image"),
    ):
        luigi.write_config(config)
        done = luigi.here("tasks", "Report", *args)
        assert named in done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 2
        assert not [path for path in luigi.root.glob("*/*") if path.is_file()]


def test_a_bad_setting_is_refused_by_a_process_in_the_format_of_its_log(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    named = "[Train] epochs: expected auto, or an integer from 1"
    done = luigi("--Train-epochs", "0")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"ERROR SettingsError: {named}" in line
    done = luigi("--Train-epochs", "0", "--Storage-log-format", "json")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert named in json.loads(line)["message"]
    assert not luigi.root.exists()


def test_a_failure_in_a_worker_process_of_luigi_ends_with_its_own_code(tmp_path, tiny_tfds):
    # How many examples there are is known when the first stage, in a worker, is done.
    done = Luigi(tmp_path, tiny_tfds)("--Train-global-batch-size", "404", "--workers", "2")
    assert done.returncode == 2
    assert "at most the 403 examples" in done.stderr


def test_a_forced_stage_is_made_again_once(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    runs = other.artifacts("runs")
    done = other.here("tasks", "Report", *FAST, "--Force-stage", "Report")
    assert done.returncode == 0, done.stderr
    assert "Report: building report (stale: requested by [Force] stage = Report)" in done.stderr
    assert other.artifacts("runs") == runs
    assert "Nothing to do" in other.here("tasks", "Report", *FAST).stderr


@pytest.mark.slow
def test_settings_that_need_a_larger_dataset_are_refused_once_its_size_is_known(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    for args, named in (
        (["--Train-global-batch-size", "404"], "global_batch_size: expected at most the 403 examples"),
        (["--Report-global-batch-sizes", "[64, 404]"], "global_batch_size: expected at most the 403 examples"),
        (
            ["--Train-global-batch-size", "403", "--Records-validation-share", "0.5"],
            "global_batch_size: expected at most",
        ),
        (["--Records-validation-share", "1e-9"], "validation_share: expected a share of 403 examples"),
    ):
        done = luigi.here("tasks", "Report", *args)
        assert done.returncode == 2, done.stderr
        assert named in done.stderr
        assert "Traceback" not in done.stderr
        assert luigi.artifacts("source")
        assert not (luigi.root / "records").exists()


def test_an_unknown_runner_is_refused_although_the_records_are_fresh(first_run):
    done = first_run.here("tasks", "Report", *FAST, "--Records-runner", "FnApiRuner")
    assert done.returncode == 2
    assert "Did you mean 'FnApiRunner'?" in done.stderr


def test_an_unwritable_root_is_refused(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    luigi.root.write_text("a file where a folder should be")
    for command in (["Report", *FAST], ["status"]):
        done = luigi.here("tasks", *command)
        assert done.returncode == 6
        assert "StorageError" in done.stderr
        assert "Set [Storage] root to a writable folder" in done.stderr


def test_a_root_whose_name_is_too_long_is_refused_in_one_line(luigi):
    for part in ("x" * 300, "/".join(["x" * 200] * 20)):
        for asked in (functools.partial(luigi.here, "tasks", "Report"), functools.partial(luigi.command, "status")):
            done = asked("--Storage-root", f"{luigi.root}/{part}")
            assert done.returncode == 6
            assert done.stderr.count("\n") == 1
            assert "StorageError" in done.stderr
            assert "File name too long" in done.stderr


def test_a_root_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for root in ("~nosuchuser/x", str(tmp_path / "loop"), str(tmp_path / "loop" / "below")):
        with (
            CmdlineParser.global_instance(["--module", "tasks", "Report", "--Storage-root", root]),
            pytest.raises(StorageError) as refused,
        ):
            root_folder()
        assert str(refused.value).startswith(f"{root}: cannot be used (")
        assert "Set [Storage] root to" in str(refused.value)


def test_a_misspelt_flag_is_refused_in_the_logs_format(luigi):
    done = luigi.here("tasks", "Report", "--Train-nonsense", "1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("ERROR SettingsError: command line: unrecognized argument --Train-nonsense.")
    done = luigi.here("tasks", "Report", "--Train-nonsense", "1", "--Storage-log-format", "json")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["error"], entry["exit_code"]) == ("error", "SettingsError", 2)


def test_an_unreachable_dataset_fails_if_the_real_one_is_required(tmp_path):
    luigi = Luigi(tmp_path, tmp_path / "empty")
    done = luigi.here("tasks", "Report", "--Source-origin", "tfds")
    assert done.returncode == 3
    assert "DatasetUnavailableError" in done.stderr
    assert "tfds_data_dir" in done.stderr


def test_an_export_of_placeholder_data_is_refused_before_training(tmp_path):
    luigi = Luigi(tmp_path, tmp_path / "empty")
    done = luigi.here("tasks", "Export")
    assert (done.returncode, luigi.artifacts("records")) == (3, {})
    assert "Pass the settings of the run, for example --Source-dataset folder --Source-path photos." in done.stderr


def test_a_missing_package_of_an_export_is_refused_before_training(tmp_path, tiny_tfds, monkeypatch):
    luigi = Luigi(tmp_path, tiny_tfds)
    monkeypatch.setattr("tasks.export.find_spec", lambda package: None)
    done = luigi.here("tasks", "Export")
    assert (done.returncode, luigi.artifacts("records")) == (2, {})
    assert "Export: the package ai_edge_litert is not installed. Install it with" in done.stderr


NO_TPU = ["--Train-device", "tpu"]


@pytest.mark.slow
def test_a_missing_device_fails_before_any_data_is_prepared(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path, tiny_tfds)
    done = luigi(*FAST, *NO_TPU)
    assert done.returncode == 7
    assert "ERROR HardwareMismatchError: [Train] device: tpu was requested. This machine lists no TPU." in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(luigi.root.glob("*/*"))


def test_a_missing_driver_fails_at_once_and_before_any_data_is_prepared(tmp_path, tiny_tfds, monkeypatch):
    luigi = Luigi(tmp_path, tiny_tfds)
    monkeypatch.setattr("pipeline.machine.has_gpu_driver", lambda: False)
    monkeypatch.setattr("tasks.train._look_for_device", lambda *_: pytest.fail("a process is started"))
    done = luigi.here("tasks", "Report", *FAST, "--Train-device", "gpu")
    assert done.returncode == 7, done.stderr
    assert "This machine has no NVIDIA driver." in done.stderr
    assert not list(luigi.root.glob("*/*"))


@pytest.mark.slow
def test_a_missing_device_is_skipped_and_tried_again(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    for _ in range(2):
        done = other.here("tasks", "Report", *FAST, *NO_TPU, "--Train-on-mismatch", "skip")
        assert done.returncode == 0, done.stderr
        assert "WARNING Training skipped. [Train] device: tpu was requested." in done.stderr
    skipped = [run for run in other.report()["runs"] if run["status"] == "skipped"]
    assert [(run["requested_device"], run["effective_device"], run["test_accuracy"]) for run in skipped] == [
        ("tpu", "none", None)
    ]


@pytest.mark.slow
def test_a_missing_device_falls_back_and_every_table_says_so(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    done = other(*FAST, *NO_TPU, "--Train-on-mismatch", "fallback", *TINY)
    assert done.returncode == 0, done.stderr
    assert "WARNING Falling back to cpu. This machine lists no TPU." in done.stderr
    assert "tpu → cpu" in done.stdout
    report = {name: (other.root / "report" / name).read_text() for name in ("report.html", "report.md")}
    assert all("fallback" in text.lower() for text in report.values())


def test_a_second_run_on_the_same_root_leaves_and_names_the_first(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    lock = (other.root / ".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write("4711 on here\n")
    lock.flush()
    done = other.here("tasks", "Report", *FAST)
    assert done.returncode == 0, "a run with nothing to do needs no lock"
    before = other.artifacts("runs")
    done = other.here("tasks", "Report", "--Train-seed", "9", *FAST)
    assert done.returncode == 5
    assert "in use by process 4711 on here" in done.stderr
    assert other.artifacts("runs") == before
    lock.close()


def test_a_crashed_holder_blocks_nobody_and_its_debris_is_cleared_away(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    (other.root / ".lock").write_text("4711 on here\n")
    debris = [
        other.root / name
        for name in ("runs/.baseline_cnn-0.4711.tmp", "records/.notes-x1_y", "runs/.drawn-x1_y", ".report.4711.tmp.old")
    ]
    not_ours = [other.root / name for name in ("project/.git", "runs/.git", ".config")]
    for folder in debris + not_ours:
        folder.mkdir(parents=True)
        (folder / "half").write_text("")
    (other.root / "report" / ".DS_Store").write_text("")
    (other.root / "report" / "report.md").unlink()
    done = other.here("tasks", "Report", *FAST)
    assert done.returncode == 0, done.stderr
    assert not any(folder.exists() for folder in debris)
    assert all((folder / "half").is_file() for folder in not_ours)


@pytest.mark.faults
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_it_in_order_and_the_next_run_goes_on(luigi, tmp_path, name):
    other = luigi.copy(tmp_path)
    process = other.start("--Train-epochs", "100000", "--Train-global-batch-size", "64", *FAST[4:])
    assert any("Epoch 1/" in line for line in process.stderr), "training never began"
    process.send_signal(signal.Signals[name])
    _, rest = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT, "a shell shows it as 130"
    assert "Interrupted" in rest
    assert "Traceback" not in rest
    assert not list(other.root.glob("*/.*"))
    assert list(other.root.glob("checkpoints/*/epoch-*")), "what was trained is kept"
    assert other(*FAST).returncode == 0


@pytest.mark.faults
def test_a_killed_training_goes_on_where_it_was(luigi, tmp_path):
    arguments = ["--Train-epochs", "12", "--Train-global-batch-size", "64", *FAST[4:]]
    undisturbed, killed = luigi.copy(tmp_path / "a"), luigi.copy(tmp_path / "b")
    process = killed.start(*arguments)
    assert any("Epoch 3/" in line for line in process.stderr), "training never began"
    process.kill()
    process.communicate(timeout=300)
    interrupted = r"interrupted after epoch \d+ of 12, resuming from the checkpoint"
    assert re.fullmatch(interrupted, killed.status(*arguments)["Train"]["reasons"][0])
    done = killed(*arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"Train: building runs/\S+ \((stale|new): {interrupted}\)", done.stderr)
    assert "Resuming after epoch" in done.stderr
    assert undisturbed(*arguments).returncode == 0
    weights = [
        {path.parent.name: path.read_bytes() for path in root.glob("runs/*/weights.safetensors")}
        for root in (undisturbed.root, killed.root)
    ]
    assert weights[0] == weights[1]
    assert not list(killed.root.glob("checkpoints/*"))


def test_a_retry_logs_its_own_outcome():
    """Luigi runs the same task again, such as after an absent device."""
    records = [SimpleNamespace(status="skipped", mismatch=None), SimpleNamespace(status="finished", mismatch=None)]
    train = mock.MagicMock(_is_trained=lambda: False, train_into=lambda *_: records.pop(0))
    train.output.return_value.manifest.return_value = {}
    Train.make(train, Path("run"))
    assert train.outcome == "skipped"
    Train.make(train, Path("run"))
    assert train.outcome == Stage.outcome == "finished in {:.1f} s"
