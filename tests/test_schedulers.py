"""Schedulers that people have already: the DAG of deploy/airflow and what docs/how-to/schedule.md shows of others.

With TENSORCRAFT_AIRFLOW=/path/to/airflow, of an environment of its own, Airflow runs the DAG against an object store.
"""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from luigi_process import PROJECT
from moto_server import ENVIRONMENT, Store

from pipeline.errors import SettingsError
from pipeline.settings.storage import STAGES, StorageSettings
from pipeline.settings.training import TrainSettings

DAG = PROJECT / "deploy" / "airflow" / "tensorcraft_dag.py"
PAGE = PROJECT / "docs" / "how-to" / "schedule.md"
EXIT_CODES = PROJECT / "docs" / "reference" / "exit-codes.md"
AIRFLOW = os.environ.get("TENSORCRAFT_AIRFLOW", "")
# Of a process that a signal ended, as the shell has it.
KILLED, TERMINATED = 137, 143
SETTINGS, NOT_GOOD_ENOUGH, REMOTE = 2, 9, 11


@cache
def values() -> dict[str, object]:
    """The constants of the DAG's file, which imports what is not installed here."""
    assigned = [node for node in ast.parse(DAG.read_text()).body if isinstance(node, ast.Assign)]
    return {node.targets[0].id: ast.literal_eval(node.value) for node in assigned}


def stages_of(code: str, keyword: str) -> list[str]:
    """What calls of the code name by a keyword, in its order."""
    keywords = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.keyword) and node.arg == keyword]
    return [node.value.value for node in keywords if isinstance(node.value, ast.Constant)]


def snippet(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


def check_flags(flags: list[str]) -> None:
    sections = {"Storage": StorageSettings, "Train": TrainSettings}
    for flag in flags:
        section, _, name = flag.removeprefix("--").partition("-")
        assert name.replace("-", "_") in sections[section].__dataclass_fields__, flag


def test_the_dag_names_stages_settings_and_exit_codes_that_exist():
    code = DAG.read_text()
    assert stages_of(code, "stage") == ["Records", "Train", "Report"]
    assert set(stages_of(code, "stage")) <= set(STAGES)
    flags = re.findall(r"--[A-Z][\w-]+", values()["COMMAND"])
    assert {"--Storage-root", "--Storage-remote", "--Storage-on-remote-error"} <= set(flags)
    check_flags(flags)
    documented = {int(number) for number in re.findall(r"^\| (\d+) \|", EXIT_CODES.read_text(), re.MULTILINE)}
    retried = values()["WORTH_A_RETRY"]
    assert retried <= documented | {KILLED, TERMINATED}
    assert REMOTE in retried
    assert not retried & {0, SETTINGS, NOT_GOOD_ENOUGH}


def test_the_command_of_a_task_has_an_empty_root_of_its_own_and_keeps_the_exit_code(tmp_path):
    python, task = tmp_path / "here" / ".venv" / "bin" / "python", tmp_path / "task"
    python.parent.mkdir(parents=True)
    task.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$@"\nexit 5\n')
    python.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "TENSORCRAFT": str(tmp_path / "here"), "BACKEND": "jax"}
    # Nothing that is given becomes a part of the command.
    given["REMOTE"] = '"; exit 0; s3://$(id)'

    def run(**more: str) -> list[str]:
        command = ["bash", "-c", values()["COMMAND"].format(stage="Records")]
        done = subprocess.run(command, cwd=task, env=given | more, capture_output=True, text=True, check=False)
        assert done.returncode == 5, done.stderr
        return done.stdout.splitlines()

    place, *arguments = run()
    assert place == given["TENSORCRAFT"]
    assert arguments[:3] == ["-m", "tasks", "Records"]
    settings = dict(zip(arguments[3::2], arguments[4::2], strict=True))
    assert settings["--Storage-root"] == str(task / "data")
    assert settings["--Storage-remote"] == given["REMOTE"]
    assert settings["--Storage-on-remote-error"] == "fail"
    assert "/a/root" in run(TENSORCRAFT_ROOT="/a/root")


def test_a_remote_that_has_to_answer_is_a_choice_of_two():
    with pytest.raises(SettingsError, match="on_remote_error"):
        StorageSettings(on_remote_error="retry")


def test_argo_workflows_has_the_same_commands_and_exit_codes():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed here")
    workflow = yaml.safe_load(snippet("yaml"))
    spec = workflow["spec"]["workflowSpec"]
    templates = {template["name"]: template for template in spec["templates"]}
    tasks = templates[spec["entrypoint"]]["dag"]["tasks"]
    assert [task["arguments"]["parameters"][0]["value"] for task in tasks] == ["Records", "Train", "Report"]
    assert [task.get("depends") for task in tasks] == [None, "records", "train"]
    stage = templates["stage"]
    retried = ast.literal_eval(stage["retryStrategy"]["expression"].partition(" in ")[2])
    assert set(retried) == values()["WORTH_A_RETRY"]
    check_flags([flag for flag in stage["container"]["args"] if flag.startswith("--")])
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (PyPI) is not installed here")
    pod = {"containers": [{"name": "main", **stage["container"]}], "volumes": stage["volumes"]}
    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stage"}}
    validator.validate({**about, "spec": pod}, validator.latest_version(), strict=True)


def test_kubeflow_has_the_same_commands():
    code = snippet("python")
    assert stages_of(code, "name")[-3:] == ["Records", "Train", "Report"]
    check_flags(re.findall(r"--[A-Z][\w-]+", code))


class Airflow:
    """``airflow dags test`` of the DAG on workers of which the first alone has the dataset."""

    def __init__(self, folder: Path, data_dir: Path, store: Store) -> None:
        self.url, self.reports, self._folder = store.bucket(), folder / "reports", folder
        self.settings = folder / "team.ini"
        self.write_settings(store.endpoint)
        text = DAG.read_text().replace("/var/lib/tensorcraft", str(self.reports))
        # One more try, and at once.
        text = text.replace('"retries": 5', '"retries": 1').replace("timedelta(minutes=2)", "timedelta(seconds=1)")
        (folder / "dags").mkdir()
        (folder / "dags" / DAG.name).write_text(text)
        python = folder / "worker" / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        nothing = folder / "nothing"
        nothing.mkdir()
        python.write_text(
            f'#!/bin/sh\ncase "$*" in *" Records "*) ;; *) export TFDS_DATA_DIR="{nothing}" ;; esac\n'
            f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" "$@"\n'
        )
        python.chmod(0o755)
        self._environment = {
            **os.environ,
            **ENVIRONMENT,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "LUIGI_CONFIG_PATH": str(self.settings),
            "TENSORCRAFT": str(folder / "worker"),
            "TFDS_DATA_DIR": str(data_dir),
        }
        for name in ("TENSORCRAFT_ROOT", "PYTHONPATH"):
            self._environment.pop(name, None)
        self._run("db", "migrate")

    def write_settings(self, endpoint: str) -> None:
        train = "[Train]\nepochs = 1\nglobal_batch_size = 64"
        self.settings.write_text(
            f"[Storage]\nremote_endpoint = {endpoint}\n[Source]\norigin = tfds\n[Records]\ntrain_shards = 3\n{train}\n"
        )

    def dag(self, **parameters: str) -> dict[str, str]:
        """Run it; what each task wrote, a task that was tried twice as one, by its name in the order begun."""
        given = json.dumps({"remote": self.url, **parameters})
        log = self._run("dags", "test", "tensorcraft", "--conf", given)
        starts = re.split(r"\[DAG TEST\] starting task_id=(\w+)", log)[1:]
        said: dict[str, str] = {}
        for name, text in zip(starts[::2], starts[1::2], strict=True):
            said[name] = said.get(name, "") + text
        return said

    def _run(self, *arguments: str) -> str:
        how = {"cwd": self._folder, "env": self._environment, "timeout": 500}
        done = subprocess.run([AIRFLOW, *arguments], capture_output=True, text=True, check=False, **how)
        assert done.returncode in (0, 1), done.stderr
        return done.stdout + done.stderr


def codes(text: str) -> list[str]:
    return re.findall(r"exited with return code (-?\d+)", text)


@pytest.mark.slow
@pytest.mark.skipif(not AIRFLOW, reason="TENSORCRAFT_AIRFLOW names no command airflow (PyPI: apache-airflow, 3.3)")
def test_airflow_runs_the_dag_on_empty_roots_and_makes_nothing_twice(tmp_path, tiny_tfds):
    store = Store()
    airflow = Airflow(tmp_path, tiny_tfds, store)

    first = airflow.dag()
    assert {name: codes(said) for name, said in first.items()} == {"records": ["0"], "train": ["0"], "report": ["0"]}
    assert "Records: building" in first["records"]
    assert first["records"].count("Pushed ") == 2
    assert "Records: downloading" in first["train"]
    assert "Training baseline_cnn" in first["train"]
    assert "Train: downloading" in first["report"]
    assert "Records: skipped" in first["report"]
    report = json.loads((airflow.reports / "report" / "report.json").read_text())
    assert report["runs"][0]["fetched_from"].startswith("s3://")

    again = airflow.dag()
    assert {name: codes(said) for name, said in again.items()} == {"records": ["0"], "train": ["0"], "report": ["0"]}
    assert "Records: downloading" in again["records"]
    assert "Train: downloading" in again["train"]
    assert "Nothing to do. Every stage is fresh." in again["report"]
    assert not re.search("(Records|Train|Report): finished in", "".join(again.values()))

    # What no later try mends is tried once, a remote that does not answer once more.
    refused = airflow.dag(experiment="no_such")
    assert {name: codes(said) for name, said in refused.items()} == {"records": ["2"]}
    store.stop()
    gone = airflow.dag()
    assert {name: codes(said) for name, said in gone.items()} == {"records": ["11", "11"]}
