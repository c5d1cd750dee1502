"""``make verify``, ``make clean-stale`` and what all commands have in common; one in a process of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import in_process
import pytest
from luigi_process import FAST, IN_CHILD, PROJECT, Luigi

from pipeline.artifacts.manifest import read_manifest, seal, write_manifest
from pipeline.errors import SettingsError
from tasks.__main__ import COMMANDS, dispatch
from tasks.report import Report, publish_dated_report
from tasks.settings import check_config_file


@pytest.fixture
def luigi(first_run, tmp_path):
    return first_run.copy(tmp_path)


def test_verify_reads_every_artifact(luigi):
    done = luigi.command("verify")
    assert done.returncode == 0, done.stderr
    *artifacts, summary = done.stdout.splitlines()
    assert [line.split()[0] for line in artifacts] == ["valid"] * 4
    manifests = [json.loads(path.read_text()) for path in luigi.root.glob("**/manifest.json")]
    read = sum(entry["bytes"] for manifest in manifests for entry in manifest["files"])
    assert summary == f"4 artifacts in {luigi.root}, 4 valid, 0 damaged, 0 unreadable, {read:,} bytes read"


def test_verify_reads_the_requested_root(luigi, first_run):
    run = next(luigi.root.glob("runs/*"))
    (run / "run.json").write_text((run / "run.json").read_text().replace('"finished"', '"skipped" '))
    next(luigi.root.glob("runs/*/model.keras")).unlink()
    first, second = sorted(luigi.root.glob("records/*/*-train.tfrecord-*"))[:2]
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other), second.write_bytes(one)
    # The root of the settings file is another, of which all is well.
    done = first_run.command("verify", "--Storage-root", str(luigi.root))
    assert done.returncode == 4, done.stderr
    damaged = [line for line in done.stdout.splitlines() if line.startswith("damaged")]
    assert [str(luigi.root) in line for line in damaged] == [True, True]
    assert f"in {luigi.root}, 2 valid" in done.stdout


def test_verify_of_a_root_without_artifacts_is_an_error(luigi, tmp_path):
    done = luigi.command("verify", "--Storage-root", str(tmp_path / "nothing"))
    assert done.returncode == 2
    assert f"{tmp_path / 'nothing'}: expected artifacts, found none" in done.stderr


def test_verify_names_each_artifact_that_has_no_manifest(luigi):
    publish_dated_report(luigi.root / "report" / "history", date(2026, 11, 1), luigi.root / "report")
    (run,) = luigi.root.glob("runs/*")
    checkpoint = luigi.root / "checkpoints" / run.name / "epoch-000001"
    checkpoint.mkdir(parents=True)
    write_manifest(checkpoint, stage="checkpoint", identity={}, details={})
    manifests = sorted(luigi.root.rglob("manifest.json"))
    assert len(manifests) == 6
    for path in manifests:
        path.unlink()
    (luigi.root / "runs" / "mine").mkdir()
    done = luigi.command("verify")
    assert done.returncode == 4, done.stderr
    *artifacts, summary = done.stdout.splitlines()
    assert sorted(line.split(":")[0] for line in artifacts) == [f"damaged  {path}" for path in manifests]
    assert "0 valid, 6 damaged, 0 unreadable, 0 bytes read" in summary


def test_verify_reads_no_kept_folder(luigi):
    (run,) = luigi.root.glob("runs/*")
    for kept in (run, luigi.root / "report" / "history" / "one"):
        damaged = kept.with_name(f"{kept.name}.kept-20261120T020000") / "2026-11-01"
        damaged.mkdir(parents=True)
        (damaged.parent / "manifest.json").write_text("{}")
    done = luigi.command("verify")
    assert done.returncode == 0, done.stdout
    assert "4 artifacts in" in done.stdout


def test_verify_misses_a_run_that_the_report_shows(luigi):
    (run,) = luigi.root.glob("runs/*")
    shutil.rmtree(run)
    done = luigi.command("verify")
    assert done.returncode == 4, done.stderr
    assert f"damaged  {run / 'manifest.json'}: expected a manifest, but it does not exist" in done.stdout


def test_verify_names_what_may_not_be_read(luigi):
    publish_dated_report(luigi.root / "report" / "history", date(2026, 11, 1), luigi.root / "report")
    for pattern in ("runs/*", "runs", "report/history", "records/*/manifest.json"):
        (path,) = luigi.root.glob(pattern)
        mode = path.stat().st_mode
        path.chmod(0)
        with in_process.without_privileges():
            done = luigi.command("verify")
        path.chmod(mode)
        assert done.returncode == 6, done.stdout + done.stderr
        assert re.search(rf"^unreadable {path}.*: permission denied", done.stdout, re.MULTILINE)
        assert "0 damaged" in done.stdout
        assert "Traceback" not in done.stderr


def test_a_root_that_may_not_be_read_is_refused_in_one_line(luigi):
    luigi.root.chmod(0)
    with in_process.without_privileges():
        done = luigi.command("verify")
    luigi.root.chmod(0o755)
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith(f"ERROR StorageError: {luigi.root}: cannot be used (Permission denied).")


@pytest.mark.slow
def test_every_command_reads_the_requested_root(luigi, tmp_path):
    """The root of the settings file is empty: what is found can only be the other's."""
    empty = Luigi(tmp_path / "empty", luigi.data_dir)
    here = ["--Storage-root", str(luigi.root), *FAST]
    assert {entry["state"] for entry in empty.status(*here).values()} == {"fresh"}
    doctor = empty.command("doctor", "--json", *here, "--Train-device", "cpu")
    assert json.loads(doctor.stdout)["checks"]["storage"]["says"].startswith(f"{luigi.root} is writable, ")
    other = ["--Storage-root", str(luigi.root), *FAST[2:], "--Train-epochs", "2"]
    run = next(luigi.root.glob("runs/*"))
    assert str(run) in empty.command("clean-stale", *other).stdout
    digits = run.name.rpartition("-")[2]
    diff = empty.command("diff", digits, digits, "--Storage-root", str(luigi.root))
    assert diff.stdout == "The two runs do not differ.\n", diff.stderr
    done = empty.python("-m", "tasks", "nightly", "--date", "2026-11-01", *here)
    assert done.returncode == 0, done.stderr
    assert (luigi.root / "last_outcome.json").is_file()
    assert not empty.root.exists()


PLAIN = ["completion", "experiments", "init", "train-local"]


WRONG = {
    ("--Train-epochs", "0"): "[Train] epochs: expected auto, or an integer from 1 to 100000, got 0",
    ("--Train-epochs", "x"): "[Train] epochs: expected an integer, got 'x'",
    (
        "--Report-seeds",
        "0,,1",
    ): "[Report] seeds: expected a list such as cpu,gpu or [256, 512], got '0,,1'",
    ("--Train-device", "cuda"): "[Train] device: expected one of auto, cpu, gpu, tpu, got 'cuda'. Did you mean 'gpu'?",
    ("--Train-epoch", "3"): "unrecognized argument --Train-epoch. Did you mean '--Train-epochs'?",
    ("--Train-batch-size", "3"): "unrecognized argument --Train-batch-size. Did you mean '--Train-global-batch-size'?",
    ("--Train-epochs",): "expected a value for --Train-epochs, got none",
    ("[cpu,gpu]",): "expected a flag such as --Train-epochs before '[cpu,gpu]'",
}


@pytest.mark.parametrize("name", ["Report", "Nightly", *sorted(set(COMMANDS) - {*PLAIN, "nightly", "report-killed"})])
def test_a_wrong_command_line_ends_with_2_and_one_line(first_run, name):
    arguments = {"diff": ["A", "B"], "predict": ["A", "B"], "promote": ["A"], "search": ["--space", "epochs=1:2"]}
    given = arguments.get(name, [])
    for wrong, expected in WRONG.items():
        if name not in ("Report", "Nightly") and wrong == ("[cpu,gpu]",):
            continue
        done = first_run.command(name, *given, *wrong)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, ""), (wrong, line)
        assert "ERROR SettingsError: " in line
        assert expected in line


def test_invalid_value_names_its_source(luigi):
    def remedy(*flags: str, more: str = "") -> str:
        luigi.write_config(more)
        done = luigi.command("status", *flags)
        assert done.returncode == 2, done.stdout
        return done.stderr.strip().rpartition(" got ")[2]

    assert remedy("--Train-epochs", "0") == "0. Change --Train-epochs."
    assert remedy("--Train-epochs=x") == "'x'. Change --Train-epochs."
    assert remedy(more="[Train]\nepochs = 0") == f"0. Change it in {luigi.config} or pass --Train-epochs."
    assert remedy("--Train-epochs", "0", more="[Train]\nepochs = 1") == "0. Change --Train-epochs."


@pytest.mark.parametrize(
    ("flag", "suggestion"),
    [
        # Luigi has --no-lock.
        ("--no-such", ""),
        ("--Train-nonsense", ""),
        ("--epochs", " Did you mean '--Train-epochs'?"),
        ("--Train-image-size", " Did you mean '--Records-image-size'?"),
        ("--Train-sead", " Did you mean '--Train-seed'?"),
        ("--jsno", " Did you mean '--json'?"),
    ],
)
def test_unknown_flag_suggests_only_close_settings(first_run, flag, suggestion):
    done = first_run.command("status", flag, "1")
    expected = f"unrecognized argument {flag}.{suggestion} --help-all lists all flags."
    assert done.stderr == f"ERROR SettingsError: command line: {expected}\n"


def test_a_misspelt_flag_of_a_command_suggests_it_and_not_the_setting_of_the_same_name(first_run):
    done = first_run.command("predict", "--modle", "best", "photos")
    assert "unrecognized argument --modle. Did you mean '--model'? " in done.stderr


def test_a_former_command_is_refused_with_the_present_one():
    for module in ("tasks.commands.status", "tasks.unattended"):
        command = [sys.executable, "-m", module, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("ERROR SettingsError: expected python -m tasks <command>. ")


def test_unknown_section_names_its_file(luigi):
    luigi.write_config("[Trian]")
    assert f"{luigi.config}: unknown section [Trian]. Did you mean 'Train'?" in luigi.command("status").stderr
    luigi.write_config("[Train]\nepoch = 3")
    assert f"{luigi.config}: [Train] has no setting 'epoch'. Did you mean 'epochs'?" in luigi.command("status").stderr


def test_help_fits_one_screen_and_lists_settings_on_request(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        description = COMMANDS.load(name).__doc__
        with pytest.raises(SystemExit) as ended:
            dispatch([name, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: tensorcraft {name} ")
        assert description in " ".join(text.split())
        assert len(text.splitlines()) <= 24
        assert "--Train-epochs 1" in text
        assert "--Train-epochs  " not in text
    with pytest.raises(SystemExit):
        dispatch(["status", "--help-all"])
    text = capsys.readouterr().out
    assert "--json" in text
    assert "\n[Train]\n" in text
    assert "\n  --Train-epochs  " in text


def test_the_overview_lists_every_command_on_one_screen(capsys):
    assert dispatch(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert len(text.splitlines()) <= 24


def test_a_command_that_does_not_exist_is_refused_with_the_nearest(first_run):
    done = first_run.command("statsu")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a command, got 'statsu'. Did you mean 'status'? tensorcraft --help lists them." in done.stderr


def test_a_status_of_a_fresh_root_imports_no_heavy_library(tmp_path):
    """Luigi alone takes most of the start. These would multiply it."""
    command = [sys.executable, "-X", "importtime", "-m", "tasks", "status", "--Storage-root", str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT)
    imported = set(re.findall(r"^import time:.*\|\s+([a-z_]+)$", done.stderr, re.MULTILINE))
    assert "luigi" in imported
    heavy = {"numpy", "pandas", "rich", "matplotlib", "obstore", "PIL", "jinja2", "apprise", "scipy", "sqlalchemy"}
    assert not imported & (heavy | {"tensorflow", "keras", "jax", "apache_beam", "tensorflow_datasets"})


def test_run_is_the_default_and_takes_a_task_and_luigis_flags(first_run):
    switch = "--local-scheduler"
    for arguments in ([], ["run"], ["run", "Report"], ["Report"], [switch], [switch, "Report"]):
        done = first_run.here("tasks", *arguments, *FAST)
        assert (done.returncode, "Nothing to do" in done.stderr) == (0, True), (arguments, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["Reprt"], "expected a task of Source, Records, Train, Report, Nightly, Export, got 'Reprt'"),
        (["Nightly", "--date", "2026-13-01"], "invalid value '2026-13-01' for --date"),
        (["RangeDaily", "--of", "Nightly", "--start", "today"], "invalid value 'today' for --start"),
        (["Report", "--workers", "two"], "invalid value 'two' for --workers"),
        (["Report", "--workers", "0"], "--workers: expected 1 or more, got 0."),
    ],
)
def test_a_task_or_value_that_cannot_be_ends_with_2_and_one_line(first_run, arguments, expected):
    done = first_run.here("tasks", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2, line
    assert line.startswith("ERROR SettingsError: command line: ")
    assert expected in line


def test_a_removed_working_directory_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    start = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); os.execv({sys.executable!r}, "
    start += f"[{sys.executable!r}, '-m', 'tasks', 'status'])"
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", start], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "ERROR SettingsError: the working directory was removed. Change to one that exists.\n"


def test_a_root_that_is_no_text_is_used_as_it_is(first_run, tmp_path):
    done = first_run.here("tasks", "status", "--Storage-root", os.fsdecode(bytes(tmp_path) + b"/\xff"))
    assert done.returncode == 0, done.stderr


def test_luigis_own_command_takes_no_beginning_of_a_flag_for_the_flag(first_run, monkeypatch):
    environment = first_run.environment({})
    arguments = ("luigi", "--module", "tasks", "Report", "--Train-epoch", "3")
    with in_process.started(*arguments, env=environment), pytest.raises(SettingsError, match="--Train-epochs"):
        check_config_file()


def test_a_settings_file_that_is_not_there_ends_with_2_before_any_work(first_run, tmp_path):
    done = first_run.here("tasks", "Report", LUIGI_CONFIG_PATH="/no/such.ini")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "settings file /no/such.ini: cannot be read (No such file or directory)." in line


@pytest.mark.parametrize(("text", "seeds"), [("0,1", (0, 1)), ("[0, 1]", (0, 1)), ("7", (7,)), ("[]", ())])
def test_a_list_may_be_written_without_brackets_and_quotes(text, seeds):
    parameters = dict(Report.get_params())
    assert parameters["seeds"].parse(text) == seeds
    assert parameters["devices"].parse("[cpu,gpu]") == parameters["devices"].parse("cpu, gpu") == ("cpu", "gpu")


@pytest.mark.parametrize("name", ["status", "doctor", "verify", "clean-stale", "diff", "tensorboard"])
def test_an_unknown_flag_is_one_line_in_the_logs_format(luigi, name):
    given = [*(["A", "B"] if name == "diff" else []), "--Train-nonsense", "1"]
    text = luigi.command(name, *given)
    assert (text.returncode, text.stdout) == (2, "")
    (line,) = text.stderr.splitlines()
    assert line.startswith("ERROR SettingsError: command line: unrecognized argument --Train-nonsense. ")
    luigi.write_config("log_format = json")
    for flag in ([], ["--Storage-log-format", "json"]):
        done = luigi.command(name, *given, *flag)
        assert (done.returncode, done.stdout) == (2, "")
        (entry,) = map(json.loads, done.stderr.splitlines())
        assert (entry["level"], entry["error"], entry["exit_code"]) == ("error", "SettingsError", 2)
        assert "--Train-nonsense" in entry["message"]
        assert "--help" in entry["message"]
        luigi.write_config()


@pytest.mark.parametrize(
    ("command", "says"),
    [(["diff", "", ""], "argument A: expected a value"), (["status", "--json=3"], "argument --json: ignored")],
)
def test_a_commands_own_flag_given_wrongly_is_one_line_where_the_log_is_json(luigi, command, says):
    done = luigi.command(*command, "--Storage-log-format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    (entry,) = map(json.loads, done.stderr.splitlines())
    assert (entry["error"], entry["exit_code"]) == ("SettingsError", 2)
    assert says in entry["message"]
    assert "usage: tensorcraft " in entry["message"]


def test_commands_warn_of_nothing_that_is_not_the_users(luigi):
    run = next(luigi.root.glob("runs/*")).name
    for command in (("status",), ("clean-stale",), ("diff", run, run)):
        done = luigi.command(*command, *FAST)
        assert (done.returncode, done.stderr) == (0, "")


def test_verify_in_a_process_of_its_own_keeps_what_libraries_write_away_and_ends_with_the_exit_code(luigi):
    done = luigi.python("-m", "tasks", "verify", *FAST)
    assert (done.returncode, done.stderr) == (0, "")
    next(luigi.root.glob("runs/*/model.keras")).unlink()
    assert luigi.python("-m", "tasks", "verify", *FAST).returncode == 4


def test_verify_finds_a_flipped_bit(luigi):
    shard = next(luigi.root.glob("records/*/*-test.tfrecord-00000-*"))
    content = bytearray(shard.read_bytes())
    content[1000] ^= 4
    shard.write_bytes(content)
    done = luigi.command("verify")
    assert done.returncode == 4
    assert f"damaged  {shard}" in done.stdout


def test_verify_counts_labels_behind_a_manifest_that_agrees_with_the_bytes(luigi):
    manifest_path = next(luigi.root.glob("records/*/manifest.json"))
    manifest = json.loads(manifest_path.read_text())
    counts = manifest["splits"]["test"]["label_counts"]
    counts["cat"], counts["dog"] = counts["cat"] + 1, counts["dog"] - 1
    manifest["seal"] = seal(manifest)
    manifest_path.write_text(json.dumps(manifest))
    done = luigi.command("verify")
    assert done.returncode == 4
    assert "expected test labels {" in done.stdout


def plant(luigi, kind: str, upstream: dict) -> Path:
    """An artifact that no settings reach."""
    folder = luigi.root / kind / "planted-0"
    folder.mkdir(parents=True)
    write_manifest(folder, stage=kind, identity={"upstream": upstream}, details={})
    return folder


def test_clean_stale_lists_and_removes_only_what_is_not_reached(luigi):
    (run,) = luigi.root.glob("runs/*")
    export = plant(luigi, "exports", {"run": "gone"})
    # Another export of the present run, such as one in other formats.
    kept = shutil.copytree(export, export.with_name("kept"))
    (kept / "manifest.json").unlink()
    upstream = {"run": read_manifest(run)["fingerprint"]}
    write_manifest(kept, stage="Export", identity={"upstream": upstream}, details={})
    # What earlier versions left.
    tuning = plant(luigi, "tuning", {})
    (luigi.root / "runs" / "mine").mkdir()
    (luigi.root / "runs" / "mine" / "notes.txt").write_text("not the pipeline's")
    dry = luigi.command("clean-stale", *FAST)
    assert dry.returncode == 0, dry.stderr
    assert "in 2 artifacts, none removed. To remove them, repeat the command with --yes." in dry.stdout
    assert export.is_dir()
    assert tuning.is_dir()
    done = luigi.command("clean-stale", "--yes", *FAST)
    assert done.returncode == 0, done.stderr
    assert "in 2 artifacts, 2 removed\n" in done.stdout
    assert run.is_dir()
    assert (kept.is_dir(), export.exists(), tuning.exists()) == (True, False, False)
    other = luigi.command("clean-stale", "--yes", *FAST[2:], "--Train-epochs", "2")
    assert f"{run}\n" in other.stdout
    assert (run.exists(), kept.exists()) == (False, False)
    assert (luigi.root / "runs" / "mine" / "notes.txt").is_file()
    assert len(luigi.artifacts("records")) == 1


def test_artifacts_with_a_pending_push_are_kept(luigi):
    (run,) = luigi.root.glob("runs/*")
    marker = luigi.root / ".unpushed" / "runs" / run.name
    marker.parent.mkdir(parents=True)
    marker.write_text("")
    done = luigi.command("clean-stale", "--yes", *FAST[2:], "--Train-epochs", "2")
    assert done.returncode == 0, done.stderr
    assert run.is_dir()


def test_clean_stale_names_a_kept_folder_and_leaves_it(luigi):
    kept = luigi.root / "runs" / "mine-0.kept-20261120T020000"
    kept.mkdir()
    (kept / "notes.txt").write_text("mine")
    (kept / "manifest.json").write_text("{}")
    done = luigi.command("clean-stale", "--yes", *FAST)
    assert done.returncode == 0, done.stderr
    assert f"Kept {kept}, because it contains your files." in done.stdout
    assert (kept / "notes.txt").is_file()


def test_clean_stale_lists_where_several_processes_train(luigi):
    done = luigi.command("clean-stale", *FAST, *("--Train-processes", "2", "--Train-device", "cpu"))
    assert done.returncode == 0, done.stderr


def test_clean_stale_removes_nothing_before_the_source_is_known(luigi):
    done = luigi.command("clean-stale", "--Source-dataset", "mnist")
    assert done.returncode == 2
    assert "Run the pipeline with these settings first" in done.stderr
    assert len(luigi.artifacts("runs")) == 1


def test_doctor_says_what_a_run_would_use_and_that_it_would_work(luigi):
    done = luigi.command("doctor", "--json", "--Train-device", "cpu")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {name: check["ok"] for name, check in answer["checks"].items()} == dict.fromkeys(
        ("packages", "storage", "dataset", "runner", "device cpu"), True
    )
    assert answer["checks"]["dataset"]["says"] == "cifar10 is available"
    assert answer["receipt"]["effective_device"] == "cpu"
    assert answer["receipt"]["device_verified"] is True


@pytest.mark.slow
def test_no_line_of_a_native_library_reaches_the_terminal(luigi, tmp_path, real_cifar10):
    first = Luigi(tmp_path / "first", real_cifar10)
    doctor = ("-m", "tasks", "doctor", "--Train-device", "cpu")
    text = ("-m", "tasks", "Records", "--Source-dataset", "tiny_shakespeare")
    for command, environment in ((doctor, luigi.environment({})), (text, first.environment({}))):
        # Of the tests' own process.
        environment = {name: value for name, value in environment.items() if name != "TF_CPP_MIN_LOG_LEVEL"} | IN_CHILD
        done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not re.search(r"^[IWE]\d{4} |absl", done.stderr, re.MULTILINE), done.stderr


def test_doctor_names_each_thing_that_would_fail_with_its_remedy(luigi, tmp_path):
    luigi.data_dir = tmp_path / "empty"
    # A runner whose name alone is wrong is refused at once, by every command; this one lacks a program beside Beam.
    arguments = ["--Source-origin", "tfds", "--Records-runner", "FlinkRunner", "--Train-device", "tpu"]
    done = luigi.command("doctor", *arguments)
    assert done.returncode == 3, done.stdout
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert set(lines) == {"dataset", "runner", "device"}
    assert "tfds_data_dir" in lines["dataset"]
    assert "flink_job_server_jar" in lines["runner"]
    assert "make engine ENGINE=flink" in lines["runner"]
    assert "This machine lists no TPU." in lines["device"]


def test_a_package_of_a_wrong_version_is_named(monkeypatch):
    from pipeline.errors import SettingsError
    from tasks.commands import setup

    monkeypatch.setattr(setup, "installed_version", lambda name: "1.0" if name == "keras" else None)
    with pytest.raises(
        SettingsError, match=r"keras>=3.* is required, but 1.0 is installed.*luigi.*no version is installed"
    ):
        setup.check_packages()


def test_doctor_is_there_without_the_package_of_another_command():
    code = "import sys; sys.modules['shtab'] = None; from tasks.commands import COMMANDS; COMMANDS.load('doctor')"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("target", "variables", "words"),
    [
        ("pipeline", ["FORCE=Train"], "run --Force-stage Train"),
        ("pipeline", ["FORCE=1", "ARGS=--Train-epochs 1"], "run --Force-stage Source --Train-epochs 1"),
        ("nightly", ["FORCE=1", "DATE=2026-11-20"], "nightly --date 2026-11-20 --Force-stage Source"),
        ("train-local", [], "train-local --processes 2"),
        ("train-local", ["PROCESSES=3"], "train-local --processes 3"),
        ("clean-stale", [], "clean-stale"),
        ("clean-stale", ["YES=1"], "clean-stale --yes"),
        ("clean-stale", ["REMOTE=1"], "clean-stale --remote"),
        ("predict", ["IMAGES=my photos", "OUTPUT=out"], 'predict "my photos" --output "out"'),
        ("predict", ["TEXTS=notes", "MODEL=best"], 'predict "notes" --model "best" --output "predictions"'),
    ],
)
def test_make_passes_its_variables_to_the_command(target, variables, words):
    """Those of the table in docs/reference/commands.md."""
    installed = [f"--old-file={name}" for name in ("setup", ".venv/bin/.installed-optional")]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    make = ["make", "--dry-run", *installed, target, *variables]
    done = subprocess.run(make, env=own, capture_output=True, text=True, check=True, cwd=PROJECT)
    (line,) = [line for line in done.stdout.splitlines() if "-m tasks" in line]
    assert " ".join(line.partition("-m tasks ")[2].rstrip("; \\").split()) == words
