"""Runs nobody watches: how they end is seen from outside, reported once and measured."""

import fcntl
import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from listeners import listening_mail
from luigi_process import PROJECT, TINY, Luigi
from scheduled import DAY, Unattended, samples

from tasks import scheduled
from tasks.process import console
from tasks.scheduled import CHANNELS, SCHEMA_VERSION, Outcome, read_outcome, write_outcome

NO_DATASET = ["--Source-origin", "tfds", "--Source-dataset", "mnist"]


@pytest.fixture
def unattended(first_run, tmp_path, webhook) -> Unattended:
    return Unattended(first_run.copy(tmp_path), webhook)


def everything_written(root) -> str:
    return "".join(path.read_bytes().decode(errors="replace") for path in root.rglob("*") if path.is_file())


def everything_below(root) -> set:
    return {(path, path.stat().st_mtime) for path in root.rglob("*")}


@pytest.mark.slow
def test_an_incident_is_reported_once_and_so_is_its_end(unattended, webhook):
    webhook.answers = [503, 503]
    for _ in range(2):
        failed = unattended.nightly(*NO_DATASET)
        assert failed.returncode == 3
        assert "DatasetUnavailableError" in failed.stderr, "the log is passed on"
        assert "Warning" not in failed.stderr
    (message,) = webhook.taken
    assert message["event"] == "failure"
    assert (message["stage"], message["exit_code"]) == ("Source", 3)
    assert message["reason"].startswith("DatasetUnavailableError: ")
    assert any("Source: " in line for line in message["log"])
    assert message["report"] == str(unattended.root / "report" / "report.html")
    for day in (DAY, "2026-11-02"):
        assert unattended.nightly(day=day).returncode == 0
    assert [message["event"] for message in webhook.taken] == ["failure", "recovery"]
    assert (unattended.outcome().exit_code, unattended.outcome().notified) == (0, ("webhook",))
    assert webhook.secret not in everything_written(unattended.root.parent)
    assert webhook.secret not in failed.stderr + failed.stdout


@pytest.mark.slow
def test_the_figures_stay_when_a_run_fails_and_say_so(unattended):
    assert unattended.nightly().returncode == 0
    good = samples(unattended.metrics)
    assert good["run_exit_code"] == [({}, 0)]
    stages = {labels["stage"] for labels, _ in good["stage_duration_seconds"]}
    assert stages == {"Source", "Records", "Train", "Report"}
    assert good["records"] == [({"split": "train"}, 403), ({"split": "test"}, 101)]
    assert good["train_images_per_second"][0][1] > 0
    assert 0 <= good["test_accuracy_ratio"][0][1] <= 1
    assert good["test_loss_nats"][0][1] > 0
    assert abs(good["success_timestamp_seconds"][0][1] - time.time()) < 300
    assert unattended.nightly(*NO_DATASET, day="2026-11-02").returncode == 3
    bad = samples(unattended.metrics)
    assert bad["run_exit_code"] == [({}, 3)]
    assert bad["success_timestamp_seconds"] == good["success_timestamp_seconds"]


@pytest.mark.parametrize("name", ["../../zz", "nonesuch"])
def test_an_experiment_that_is_not_there_has_no_state(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORCRAFT_EXPERIMENT", name)
    with scheduled.settings(["Nightly", "--Storage-root", str(tmp_path)]):
        assert scheduled.outcome_path() is None
    monkeypatch.setenv("TENSORCRAFT_EXPERIMENT", "mnist_cnn")
    with scheduled.settings(["Nightly", "--Storage-root", str(tmp_path)]):
        assert scheduled.outcome_path() == tmp_path / "last_outcome-mnist_cnn.json"


@pytest.mark.slow
def test_an_experiment_that_is_not_there_is_reported_and_nothing_is_written(unattended, webhook, tmp_path):
    before = everything_below(tmp_path) - {(tmp_path, tmp_path.stat().st_mtime)}
    done = unattended.nightly("--Storage-root", str(tmp_path / "root" / "deep"), TENSORCRAFT_EXPERIMENT="../../zz")
    assert done.returncode == 2
    assert "experiment: expected one of cifar10, " in done.stderr
    assert "Traceback" not in done.stderr
    (message,) = webhook.taken
    assert "experiment: expected one of" in message["reason"]
    written = {path for path, _ in everything_below(tmp_path) - before} - {tmp_path, unattended.metrics}
    assert written == set()


@pytest.mark.slow
def test_a_refused_setting_is_reported_too(unattended, webhook):
    done = unattended.nightly("--Train-training-recipe", "onecycl")
    assert done.returncode == 2
    (message,) = webhook.taken
    assert "[Train] training_recipe: expected auto, or one of" in message["reason"]
    assert unattended.nightly("--Train-nonsense", "1").returncode == 2
    assert len(webhook.taken) == 1, "the same cause, as far as one can tell"


def test_a_schedule_without_its_settings_file_trains_nothing(unattended):
    done = unattended.nightly(LUIGI_CONFIG_PATH="/no/such.ini")
    assert done.returncode == 2
    assert "settings file /no/such.ini: cannot be read" in done.stderr


def test_a_refused_run_is_remembered_under_the_root_it_was_given(unattended, webhook, tmp_path):
    here = tmp_path / "elsewhere"
    done = unattended.nightly("--Storage-root", str(here), "--Train-nonsense", "1")
    assert done.returncode == 2
    (message,) = webhook.taken
    assert message["event"] == "failure"
    assert "--Train-nonsense" in message["reason"]
    assert read_outcome(here / "last_outcome.json").exit_code == 2
    assert not (unattended.root / "last_outcome.json").exists()


REFUSED_ROOTS = {
    "empty": (["--Storage-root", ""], 2),
    "an address": (["--Storage-root", "gs://bucket/data"], 2),
    "a flag that does not exist": (["--Storage-rot", "elsewhere"], 2),
    "without a value": (["--Storage-root"], 2),
    "too long a name": (["--Storage-root", "x" * 300], 6),
}


@pytest.mark.parametrize("case", REFUSED_ROOTS)
def test_a_root_that_is_refused_has_no_state(case):
    flags, code = REFUSED_ROOTS[case]
    with scheduled.settings(["Nightly", *flags]):
        path = scheduled.outcome_path()
    # One that is refused only by the system is found out when it is written to.
    assert path is None or code == 6


@pytest.mark.parametrize(
    "case",
    [
        "a flag that does not exist",
        "too long a name",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("empty", "an address", "without a value")),
    ],
)
def test_a_refused_root_is_notified_and_no_other_root_is_written(unattended, webhook, case):
    flags, code = REFUSED_ROOTS[case]
    before = everything_below(unattended.root), everything_below(PROJECT / "data")
    done = unattended.nightly(*flags)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    (message,) = webhook.taken
    assert (message["event"], message["exit_code"]) == ("failure", code)
    assert (everything_below(unattended.root), everything_below(PROJECT / "data")) == before
    assert samples(unattended.metrics)["run_exit_code"] == [({}, code)]


def test_the_reason_is_reported_from_a_log_in_json_too(unattended, webhook):
    with open(unattended.root / ".lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = unattended.nightly("--Train-seed", "1", "--Storage-log-format", "json")
    assert done.returncode == 5, done.stderr
    (message,) = webhook.taken
    assert message["reason"].startswith(f"BusyError: {unattended.root}: in use")


def test_more_events_are_read_than_a_pipe_would_hold():
    """The events of a backfill of years; a process that writes to a full pipe waits without end."""
    reported = os.memfd_create("events")
    for task in range(5_000):
        entry = ["event.core.start", f"Nightly{task}", ""]
        os.write(reported, json.dumps(entry).encode() + b"\n")
    assert console.what_failed(reported) == ("Nightly4999", "")


@pytest.mark.slow
def test_a_webhook_that_is_down_changes_no_exit_code_and_gets_the_recovery(unattended, webhook):
    webhook.answers = [404] * 6
    done = unattended.nightly(*NO_DATASET)
    assert done.returncode == 3
    assert "The notification was not accepted. The next run sends it again." in done.stderr
    failed = unattended.outcome()
    assert failed.notified == ()
    assert unattended.nightly().returncode == 0
    (recovery,) = webhook.taken
    assert recovery["event"] == "recovery"
    assert f"failures since {failed.started_at}" in recovery["text"]


@pytest.mark.slow
def test_mail_goes_out_through_luigis_own_settings(unattended, webhook):
    with listening_mail() as (port, taken):
        mail = "[email]\nreceiver = ops@example.org\nsender = pipeline@example.org"
        unattended.write_config(f"{mail}\n[smtp]\nhost = 127.0.0.1\nport = {port}\nno_tls = true\n")
        for args in (NO_DATASET, []):
            unattended.nightly(*args)
    failure, recovery = taken
    assert failure["To"] == "ops@example.org"
    assert "failed in Source with exit code 3" in failure["Subject"]
    (text,) = failure.iter_parts()
    assert "exit_code: 3" in text.get_content()
    assert "succeeded" in recovery["Subject"]
    assert webhook.secret not in text.get_content()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), ("SIGTERM", 130)])
def test_a_run_that_is_ended_from_outside_is_reported_with_its_stage(unattended, webhook, name, code):
    process = unattended.start_nightly(*TINY, "--Train-epochs", "100000")
    assert any("Epoch 1/" in line for line in process.stderr), "training never began"
    (run,) = [child for child in psutil.Process(process.pid).children() if "tasks" in child.cmdline()]
    # SIGKILL hits the run alone, as the kernel does when memory is short; SIGTERM comes from whoever started us.
    (run.kill if name == "SIGKILL" else process.terminate)()
    process.communicate(timeout=300)
    assert process.returncode == code
    (message,) = webhook.taken
    assert (message["stage"], message["exit_code"]) == ("Train", code)
    assert message["reason"] == f"ended by {'SIGKILL' if name == 'SIGKILL' else 'SIGINT'}"
    assert any("Epoch 1/" in line for line in message["log"])


def test_the_outcome_is_plain_json_for_programs(unattended):
    assert unattended.nightly().returncode == 0
    outcome = json.loads((unattended.root / "last_outcome.json").read_text())
    assert outcome["task"] == f"Nightly {DAY}"
    assert (outcome["exit_code"], outcome["reason"], outcome["failing_since"]) == (0, "", None)
    assert outcome["schema_version"] == SCHEMA_VERSION


def ended(exit_code: int = 0, stage: str = "", day: int = 1) -> Outcome:
    started_at = f"2026-11-{day:02}T02:00:00+00:00"
    return Outcome(task="Nightly", started_at=started_at, seconds=90, exit_code=exit_code, stage=stage)


@pytest.mark.parametrize(
    ("codes", "down", "sent"),
    [
        ([0, 0], set(), [0, 0]),
        ([3, 3, 3, 0, 0], set(), [1, 0, 0, 1, 0]),
        ([3, 8, 8, 3, 0], set(), [1, 1, 0, 1, 1]),
        ([0, 3, 0, 3], set(), [0, 1, 1, 1]),
        # The channel is down when the run fails. The same failure, another one, or the recovery is sent.
        ([3, 3, 3, 0], {0}, [1, 1, 0, 1]),
        ([3, 8, 8], {0}, [1, 1, 0]),
        ([3, 0, 0], {0}, [1, 1, 0]),
        # The channel is down when the run works again.
        ([3, 0, 0, 0], {1}, [1, 1, 1, 0]),
        ([3, 0, 3, 0], {0, 1}, [1, 1, 1, 1]),
    ],
)
def test_a_changed_outcome_is_sent_once_and_again_until_it_is_accepted(tmp_path, monkeypatch, codes, down, sent):
    monkeypatch.setattr(scheduled, "outcome_path", lambda: tmp_path / "deep" / "last_outcome.json")
    monkeypatch.setattr(scheduled, "report_page", lambda: "report.html")
    monkeypatch.setattr(
        scheduled, "Notify", lambda: SimpleNamespace(webhook_url="http://hooks.example.org", report_url="")
    )
    messages = []
    for number, code in enumerate(codes):
        asked = []
        send = lambda *_, n=number, a=asked: a.append(n) or n not in down  # noqa: E731
        monkeypatch.setattr(scheduled, "send", send)
        scheduled.record(ended(code, "Train" if code else "", day=number + 1))
        messages.append(len(asked))
    assert messages == sent


@pytest.mark.parametrize(
    ("codes", "down", "mailed"),
    [
        ([3, 3, 8, 0, 0, 0], range(6), [1, 0, 1, 1, 0, 0]),
        ([0, 3, 3, 0, 3], (), [0, 1, 0, 1, 1]),
    ],
)
def test_each_message_is_mailed_once_whether_or_not_the_webhook_fails(tmp_path, monkeypatch, codes, down, mailed):
    def send(*_: object) -> bool:
        if number in down:
            raise TypeError("in apprise")
        return True

    mails = []
    monkeypatch.setattr(scheduled, "outcome_path", lambda: tmp_path / "last_outcome.json")
    monkeypatch.setattr(scheduled, "report_page", lambda: "report.html")
    monkeypatch.setattr(
        scheduled, "Notify", lambda: SimpleNamespace(webhook_url="http://hooks.example.org", report_url="")
    )
    monkeypatch.setattr(scheduled, "send", send)
    monkeypatch.setattr(scheduled.luigi.notifications, "email", lambda: SimpleNamespace(receiver="ops@example.org"))
    monkeypatch.setattr(scheduled.luigi.notifications, "send_error_email", lambda *_: mails.append(number))
    for number, code in enumerate(codes):
        assert "mail" in scheduled.record(ended(code, "Train" if code else "", day=number + 1)).notified
    assert [mails.count(number) for number in range(len(codes))] == mailed


def test_a_killed_run_is_reported_and_measured(unattended, webhook):
    killed = {"MONITOR_UNIT": "tensorcraft.service", "MONITOR_EXIT_STATUS": "KILL", "MONITOR_INVOCATION_ID": "a1"}
    for _ in range(2):
        assert unattended.command("report-killed", **killed).returncode == 0
    (message,) = webhook.taken
    assert (message["task"], message["exit_code"]) == ("tensorcraft.service", 137)
    assert samples(unattended.metrics)["run_exit_code"] == [({}, 137)]


@pytest.mark.parametrize(("status", "code"), [("0", 1), ("3", 3), ("KILL", 137)])
def test_no_failure_that_systemd_reports_is_recorded_as_success(status, code):
    assert scheduled.outcome_from_systemd({"MONITOR_EXIT_STATUS": status}).exit_code == code


def test_the_same_code_in_another_stage_is_another_cause():
    first = ended(6, "Records").after(None)
    told = replace(first, notified=CHANNELS)
    assert ended(6, "Records").after(told).notified == CHANNELS
    assert not ended(6, "Train").after(told).notified


def test_the_outcome_states_the_last_success_and_since_when_runs_fail():
    outcome, found = None, []
    for day, code in enumerate([0, 3, 8, 0, 0], start=1):
        outcome = replace(ended(code, "Train", day).after(outcome), notified=CHANNELS)
        found.append((outcome.failing_since and outcome.failing_since[8:10], outcome.last_success[8:10]))
    assert found == [(None, "01"), ("02", "01"), ("02", "01"), ("02", "04"), (None, "05")]
    assert outcome.last_success == "2026-11-05T02:01:30+00:00"


def test_a_channel_that_is_set_up_later_needs_no_message_of_a_success():
    before = ended(0).after(ended(3).after(None, ()), ())
    assert (before.notified, before.failing_since is None) == ((), False)
    assert ended(0).after(ended(0).after(before, ()), CHANNELS).notified == CHANNELS


def test_a_recovery_that_was_not_accepted_still_states_since_when_runs_failed():
    recovery = ended(0, day=3).after(ended(3, day=2).after(None))
    assert ended(0, day=4).after(recovery).failing_since == "2026-11-02T02:00:00+00:00"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"schema_version": 9}',
        '{"schema_version": 2, "task": 3}',
        '{"schema_version": 2, "notified": 3}',
    ],
)
def test_a_damaged_outcome_is_replaced(tmp_path, content, caplog):
    (tmp_path / "last_outcome.json").write_text(content)
    assert read_outcome(tmp_path / "last_outcome.json") is None
    assert "cannot be read" in caplog.text
    write_outcome(tmp_path / "last_outcome.json", ended(3))
    assert read_outcome(tmp_path / "last_outcome.json").exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["last_outcome.json"]


def test_a_full_disk_only_logs(tmp_path, monkeypatch, caplog):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scheduled, "outcome_path", lambda: tmp_path / "last_outcome.json")
    monkeypatch.setattr(scheduled, "write_outcome", full)
    assert scheduled.record(ended(6)).notified == ()
    assert "The outcome of this run was not recorded: [Errno 28] No space left on device" in caplog.text


@pytest.mark.parametrize("wrong", [["--Train-nonsense", "1"], ["--Train-epochs", "none"], ["--Storage-rot", "x"]])
def test_the_command_line_says_where_a_refused_run_is_reported(wrong, tmp_path):
    flags = ["--Notify-webhook-url", "https://127.0.0.1/hook", "--Metrics-prometheus-file", str(tmp_path / "run.prom")]
    with scheduled.settings(["Nightly", *flags, *wrong]):
        assert scheduled.Notify().webhook_url == "https://127.0.0.1/hook"
        assert scheduled.Metrics().prometheus_file == str(tmp_path / "run.prom")


def test_a_refused_address_ends_a_scheduled_run_at_once(tmp_path):
    done = Luigi(tmp_path, tmp_path).here("tasks", "Nightly", "--Notify-webhook-url", "httpx://here")
    assert done.returncode == 2
    assert "[Notify] webhook_url: expected an address" in done.stderr
    assert not (tmp_path / "root" / "source").exists()


def test_a_run_by_hand_needs_no_variable_with_the_address(tmp_path):
    luigi = Luigi(tmp_path, tmp_path)
    luigi.write_config("[Notify]\nwebhook_url = ${AN_ADDRESS_OF_THE_SCHEDULE}")
    # The run ends where it would begin.
    luigi.root.write_text("a file")
    assert luigi.here("tasks", "Report", "--Experiment-name", "AsNightly").returncode == 6
    scheduled = luigi.here("tasks", "Nightly")
    assert scheduled.returncode == 2
    assert "[Notify] webhook_url: Config refers to a nonexisting environment variable" in scheduled.stderr


def test_a_refused_address_leaves_that_of_the_files():
    with scheduled.settings(["Nightly", "--Notify-webhook-url", "nonsense", "--Train-nonsense", "1"]):
        assert scheduled.Notify().webhook_url == ""
