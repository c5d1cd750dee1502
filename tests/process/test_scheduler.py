"""Luigi's central scheduler and several workers: one training at a time on one device, shown to whoever looks."""

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from listeners import listening_webhook
from luigi_process import FAST, PROJECT, TINY, Luigi

TRAINED = [*FAST[2:], *TINY, "--Train-epochs"]


class Scheduler:
    """A real luigid on a free port of the loopback interface, started as ``make scheduler`` does."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.state = folder / "state"
        # make would set up an environment first: its recipe is run without what it depends on.
        training_recipe = subprocess.run(
            ["make", "--dry-run", "--old-file=setup", "scheduler", f"SCHEDULER_PORT={self.port}",
             f"SCHEDULER_STATE={self.state}", f"BIN={Path(sys.executable).parent}"],
            cwd=PROJECT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        environment.pop("LUIGI_CONFIG_PATH", None)
        how = {"cwd": PROJECT, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(["sh", "-c", training_recipe.stdout], **how)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                self.tasks()
                return
            except requests.ConnectionError:
                time.sleep(0.2)
        raise AssertionError("luigid did not come up")

    def tasks(self, status: str = "") -> list[dict]:
        asked = {"data": json.dumps({"status": status, "upstream_status": ""})}
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(f"http://127.0.0.1:{self.port}/api/task_list", params=asked, timeout=60)
        return list(answer.json()["response"].values())

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=300)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    scheduler = Scheduler(tmp_path_factory.mktemp("luigid"))
    yield scheduler
    scheduler.stop()


def central(luigi: Luigi, scheduler: Scheduler) -> Luigi:
    luigi.write_config(f"[core]\nscheduler_port = {scheduler.port}")
    more = {"TENSORCRAFT_SCHEDULER": "central", "NO_PROXY": "127.0.0.1"}
    environment = luigi.environment
    luigi.environment = lambda extra: environment({**more, **extra})
    return luigi


def test_it_listens_on_loopback_alone_and_nobody_else_reads_its_state(scheduler):
    assert stat.S_IMODE(scheduler.state.stat().st_mode) == 0o700
    listening = Path(f"/proc/{scheduler.process.pid}/net/tcp").read_text().split("\n")[1:]
    ours = [line.split()[1] for line in listening if line and line.split()[1].endswith(f":{scheduler.port:04X}")]
    assert {address.split(":")[0] for address in ours} == {"0100007F"}


@pytest.mark.slow
def test_two_runs_that_share_a_scheduler_never_train_at_once(first_run, tmp_path, scheduler):
    luigis = [central(first_run.copy(tmp_path / name), scheduler) for name in ("a", "b")]
    processes = [luigi.start(*TRAINED, "2", "--Train-seed", "7") for luigi in luigis]
    at_once, waited = [], False
    while any(process.poll() is None for process in processes):
        tasks = scheduler.tasks()
        training = [task for task in tasks if task["name"] == "Train" and task["status"] == "RUNNING"]
        at_once.append(len(training))
        waited |= bool(training) and any(task["name"] == "Train" and task["status"] == "PENDING" for task in tasks)
        time.sleep(0.1)
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert max(at_once) == 1
    assert waited, "the second never had to wait"
    assert all(len(luigi.artifacts("runs")) == 2 for luigi in luigis)


@pytest.mark.slow
def test_a_failed_run_leaves_and_the_next_one_tries_again(first_run, tmp_path, scheduler):
    luigi = central(first_run.copy(tmp_path), scheduler)
    for _ in range(2):
        failed = luigi(*FAST[:2], *FAST[4:], "--Train-global-batch-size", "404")
        assert failed.returncode == 2, failed.stderr
        assert "at most the 403 examples" in failed.stderr
    assert luigi(*FAST[:2], *FAST[4:], *TINY, "--Train-global-batch-size", "32").returncode == 0


@pytest.fixture
def not_luigi() -> Iterator[int]:
    """The port of a server that knows nothing of Luigi."""
    with listening_webhook() as webhook:
        yield int(webhook.url.split(":")[2].split("/")[0])


def test_a_scheduler_that_is_not_there_is_one_line_with_the_remedy(first_run, tmp_path, not_luigi):
    luigi = first_run.copy(tmp_path)
    environment = luigi.environment
    luigi.environment = lambda more: environment({"TENSORCRAFT_SCHEDULER": "central", "NO_PROXY": "127.0.0.1", **more})
    for port in (9, not_luigi):
        done = luigi(*FAST, TENSORCRAFT_SCHEDULER_PORT=str(port))
        assert done.returncode == 10
        (line,) = done.stderr.splitlines()
        assert line.startswith(
            f"ERROR SchedulerUnavailableError: http://127.0.0.1:{port}: Luigi's central scheduler does not respond"
        )
        assert line.endswith('Start it with "luigid", or set TENSORCRAFT_SCHEDULER to local to run without it.')
    done = luigi(*FAST, "--Storage-log-format", "json", TENSORCRAFT_SCHEDULER_PORT="9")
    (line,) = done.stderr.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["error"], entry["exit_code"]) == ("error", "SchedulerUnavailableError", 10)
    assert luigi.artifacts("runs").keys() == first_run.artifacts("runs").keys()


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1", ""])
def test_an_impossible_port_of_the_scheduler_is_refused(tmp_path, port):
    luigi = Luigi(tmp_path, tmp_path)
    done = luigi.command("status", TENSORCRAFT_SCHEDULER="central", TENSORCRAFT_SCHEDULER_PORT=port)
    assert done.returncode == 2
    expected = f"ERROR SettingsError: TENSORCRAFT_SCHEDULER_PORT: expected a port from 1 to 65535, got {port!r}."
    assert done.stderr == f"{expected} Unset it to use 8082.\n"


def test_a_scheduler_that_stops_later_is_reported_without_a_traceback(first_run, tmp_path):
    """What ``luigi`` itself finds, which asks again before it gives up."""
    luigi = first_run.copy(tmp_path)
    luigi.write_config(
        "[core]\nlocal_scheduler = false\nscheduler_port = 9\nrpc_retry_attempts = 2\nrpc_retry_wait = 1"
    )
    done = luigi(*FAST, command=("-m", "luigi", "--module", "tasks"), LUIGI_CONFIG_PARSER="ini")
    assert done.returncode == 10, done.stderr
    assert "Traceback" not in done.stderr
    assert "NoneType" not in done.stderr
    assert "ERROR SchedulerUnavailableError: " in done.stderr


def test_one_setting_moves_the_scheduler_and_the_runs_that_ask_it():
    code = "import luigi.interface, tasks; print('asked at', luigi.interface.core().scheduler_port)"
    training_recipe = f'show:\n\t@{sys.executable} -c "{code}"\n'
    asked = ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "SCHEDULER=central", "SCHEDULER_PORT=8092"]
    how = {"cwd": PROJECT, "capture_output": True, "text": True, "check": True}
    assert subprocess.run([*asked, "show"], input=training_recipe, **how).stdout == "asked at 8092\n"
    dry = subprocess.run([*asked, "--dry-run", "--old-file=setup", "scheduler"], input="", **how).stdout
    assert "--port 8092" in dry


@pytest.mark.slow
def test_workers_train_side_by_side_as_far_as_resources_allow(first_run, tmp_path):
    """Without this setting only one at a time does, as the two that share a scheduler."""
    luigi = first_run.copy(tmp_path)
    luigi.write_config("[resources]\naccelerator = 2")
    code = (
        "import sys, luigi.retcodes\n"
        "try:\n"
        "    luigi.retcodes.run_with_retcodes(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    heavy = {'tensorflow', 'apache_beam', 'keras'} & sys.modules.keys()\n"
        "    print('before the fork:', sorted(heavy))\n"
        "    raise\n"
    )
    done = luigi.python("-c", code, "--module", "tasks", "Report", *TRAINED, "1", "--seeds", "[1,2]", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert "before the fork: []" in done.stdout
    assert len(luigi.artifacts("runs")) == 3
    running, greatest = 0, 0
    for line in done.stderr.splitlines():
        running += ("Train: building" in line) - ("Train: finished" in line)
        greatest = max(greatest, running)
    assert greatest == 2
