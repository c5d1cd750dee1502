"""Messages: over a real connection to a server that fails first, and without secrets."""

from dataclasses import replace

import pytest
import tenacity

from pipeline.errors import SettingsError
from pipeline.settings.storage import MetricsSettings, NotifySettings
from tasks import scheduled
from tasks.scheduled import Outcome
from tasks.settings import in_force

FAILED = Outcome(
    task="Nightly 2026-11-20",
    started_at="2026-11-20T02:00:00+00:00",
    seconds=61.5,
    exit_code=8,
    stage="Train",
    reason="TimeLimitError: Train: not done after 60 s.",
    log=("one", "two"),
    failing_since="2026-11-19T02:00:00+00:00",
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(scheduled._post.retry, "wait", tenacity.wait_none())
    monkeypatch.setattr(scheduled, "report_page", lambda: "/data/report/report.html")
    monkeypatch.setattr(scheduled.socket, "gethostname", lambda: "here")


def example(exit_code: int = 8) -> dict:
    return scheduled.message(replace(FAILED, exit_code=exit_code))


def test_a_message_says_stage_reason_code_log_and_report():
    message = example()
    assert message["text"] == (
        "Nightly 2026-11-20 on here: failed in Train with exit code 8: TimeLimitError: Train: not done after 60 s."
    )
    assert (message["stage"], message["exit_code"], message["log"]) == ("Train", 8, ["one", "two"])
    assert message["report"] == "/data/report/report.html"
    assert example(0)["text"] == (
        "Nightly 2026-11-20 on here: succeeded, after failures since 2026-11-19T02:00:00+00:00"
    )


def test_a_server_that_fails_twice_is_retried_and_gets_one_message(webhook):
    webhook.answers = [503, 502]
    assert scheduled.send(webhook.url, example())
    assert webhook.taken == [example()]
    assert webhook.asked == 3


@pytest.mark.parametrize("answers", [[404] * 9, [503] * 9, [307] * 9])
def test_a_server_that_does_not_accept_it_is_left_without_its_address_in_the_log(webhook, caplog, answers):
    webhook.answers = answers
    assert not scheduled.send(webhook.url, example())
    assert webhook.asked == 6
    assert webhook.taken == []
    assert f"status {answers[0]}" in caplog.text
    assert "The notification was not accepted" in caplog.text
    assert webhook.secret not in caplog.text


def test_a_server_does_not_forward_the_message(webhook):
    webhook.answers = [307]
    assert scheduled.send(webhook.url, example())
    assert webhook.asked == 2, "asked again, and not sent on"


@pytest.mark.parametrize(
    ("address", "warning"),
    [
        ("http://127.0.0.1:9/services/SECRET", "did not respond (ConnectionError)"),
        ("http://a b/SECRET", "did not respond (InvalidURL)"),
        ("httpx://a/SECRET", "did not respond (InvalidSchema)"),
        ("slack://SECRET", "apprise does not support this kind of address"),
        ("slak://a/b/SECRET", "apprise does not support this kind of address"),
    ],
)
def test_a_server_that_is_not_there_is_logged_without_its_address(caplog, address, warning):
    caplog.set_level("DEBUG", logger="tasks")
    assert not scheduled.send(address, example())
    assert caplog.text.count(warning) == (6 if "did not respond" in warning else 1)
    assert "The notification was not accepted" in caplog.text
    assert "SECRET" not in caplog.text


def test_an_apprise_address_is_retried(webhook, monkeypatch):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    webhook.answers = [503]
    assert scheduled.send(webhook.url.replace("http://", "json://"), example())
    assert webhook.taken[0]["title"] == example()["text"]
    assert waits == [1]


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
def test_secrets_are_hidden(text, clean, monkeypatch):
    monkeypatch.setenv("SMTP_PASSWORD", "hunter22")
    monkeypatch.setenv("A_TOKEN", "to")
    monkeypatch.setenv("HARMLESS", "nothing")
    address = "https://hooks.example.org/services/T0/B0/abc"
    with in_force(["--module", "tasks", "Report", "--Notify-webhook-url", address]):
        assert scheduled.redact(text, scheduled._secrets()) == clean


def test_a_refused_webhook_is_not_quoted():
    with pytest.raises(SettingsError, match=r"\[Notify\] webhook_url") as refused:
        NotifySettings(webhook_url="hooks.example.org/SECRET")
    assert "SECRET" not in str(refused.value)
    assert "SECRET" not in repr(NotifySettings(webhook_url="https://hooks.example.org/SECRET"))


@pytest.mark.parametrize(
    "address",
    ["httpx://a/SECRET", "http://a b/SECRET", "https://a:port/SECRET", "http://a:99999/SECRET", "https:///SECRET"],
)
def test_an_address_that_cannot_be_asked_is_refused_before_any_work(address):
    with pytest.raises(SettingsError, match=r"\[Notify\] webhook_url: expected an address") as refused:
        NotifySettings(webhook_url=address)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.example.org/services/T0?x=1",
        "http://me:pa55@localhost:8080",
        "http://[::1]:80/hook",
        "https://bücher.example/hook",
        "slack://T0/B0/abc",
        "mailtos://me:pa55@example.org?to=a@b.c",
    ],
)
def test_addresses_of_servers_and_of_apprise_are_accepted(address):
    assert NotifySettings(webhook_url=address).webhook_url == address


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
