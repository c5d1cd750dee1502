"""Messages: over a real connection to a server that fails first, and without secrets."""

import pytest

from pipeline.config.storage import MetricsSettings, NotifySettings
from pipeline.errors import SettingsError
from tasks.operations import messages, redaction
from tasks.operations import webhook as channel
from tasks.operations.incidents import Outcome

QUICK = {"total": 3, "backoff_factor": 0.01}
FAILED = Outcome(
    task="Nightly 2026-11-20",
    started_at="2026-11-20T02:00:00+00:00",
    seconds=61.5,
    exit_code=8,
    stage="Train",
    reason="TimeLimitError: Train: not done after 60 s.",
    log=("one", "two"),
)


def example(event: str = "failure") -> dict:
    since = "2026-11-19T02:00:00+00:00"
    return messages.message(FAILED, event=event, host="here", since=since, report="/data/report/report.html")


def test_a_message_says_stage_reason_code_log_and_report():
    message = example()
    assert message["text"] == (
        "Nightly 2026-11-20 on here: failed in Train with exit code 8: TimeLimitError: Train: not done after 60 s."
    )
    assert (message["stage"], message["exit_code"], message["log"]) == ("Train", 8, ["one", "two"])
    assert message["report"] == "/data/report/report.html"
    assert example("recovery")["text"] == (
        "Nightly 2026-11-20 on here: works again, after failing since 2026-11-19T02:00:00+00:00"
    )


def test_a_server_that_fails_twice_is_asked_again_and_gets_one_message(webhook):
    webhook.answers = [503, 502]
    assert channel.post(webhook.url, example(), retry=QUICK)
    assert webhook.taken == [example()]
    assert webhook.asked == 3


@pytest.mark.parametrize(("answers", "asked"), [([404], 1), ([503] * 9, 4), ([307], 1)])
def test_a_server_that_does_not_accept_it_is_left_without_its_address_in_the_log(webhook, caplog, answers, asked):
    webhook.answers = answers
    assert not channel.post(webhook.url, example(), retry=QUICK)
    assert webhook.asked == asked
    assert "the webhook" in caplog.text
    assert webhook.secret not in caplog.text


def test_a_server_that_is_not_there_is_logged_without_its_address(caplog):
    caplog.set_level("DEBUG", logger="tasks")
    assert not channel.post("http://127.0.0.1:9/services/SECRET", example(), retry={"total": 1, "backoff_factor": 0})
    assert "the webhook was not reached" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("to https://hooks.example.org/services/T0/B0/abc", "to ***"),
        ("url: /services/T0/B0/abc (Caused by", "url: /*** (Caused by"),
        ("password hunter22 refused", "password *** refused"),
        ("https://me:pa55@mirror.example.org/simple", "https://***@mirror.example.org/simple"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_are_hidden(text, clean):
    secrets = redaction.host_secrets("https://hooks.example.org/services/T0/B0/abc")
    secrets |= redaction.secrets_of({"SMTP_PASSWORD": "hunter22", "HOME": "nothing", "A_TOKEN": "to"})
    assert redaction.redact(text, secrets) == clean


def test_a_refused_webhook_is_not_quoted():
    with pytest.raises(SettingsError, match=r"\[Notify\] webhook_url") as refused:
        NotifySettings(webhook_url="hooks.example.org/SECRET")
    assert "SECRET" not in str(refused.value)
    assert "SECRET" not in repr(NotifySettings(webhook_url="https://hooks.example.org/SECRET"))


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (NotifySettings, {"log_lines": 201}),
        (NotifySettings, {"report_url": "javascript:alert(1)"}),
        (MetricsSettings, {"prometheus_file": "/var/lib/node_exporter/tensorcraft.txt"}),
    ],
)
def test_impossible_settings_are_refused(kind, setting):
    (name,) = setting
    with pytest.raises(SettingsError, match=name):
        kind(**setting)
