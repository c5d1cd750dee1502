"""Names and passwords of addresses reach no log and no error."""

import logging

import pytest

from pipeline.errors import RemoteError, without_userinfo
from tasks.process.console import JsonLines, TextLines

ADDRESS, HIDDEN = "https://me:p@ss:word@mlflow.example:5000/path?x=1", "https://***@mlflow.example:5000/path?x=1"


def record(**changes) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "pipeline", "levelno": logging.WARNING, "msg": "at %s", **changes})


@pytest.mark.parametrize("formatter", [TextLines("%(message)s"), JsonLines()])
def test_logs_hide_them_in_messages_errors_and_tracebacks(formatter):
    try:
        raise ValueError(f"no answer from {ADDRESS}")
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    for one in (record(args=(ADDRESS,)), record(msg="failed", exc_info=exc_info)):
        text = formatter.format(one)
        assert HIDDEN in text
        assert "p@ss" not in text


def test_errors_hide_them():
    assert str(RemoteError(f"{ADDRESS} does not answer")) == f"{HIDDEN} does not answer"


@pytest.mark.parametrize("text", ["mail me@example.org", "see https://host/a@b", "s3://bucket/prefix", "me@host:path"])
def test_text_without_userinfo_is_unchanged(text):
    assert without_userinfo(text) == text


def test_a_tracking_server_that_does_not_answer_is_named_without_its_password(make_run, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    from pipeline.runs.tracking import log_run

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    assert log_run(make_run(), tracking_uri="http://me:secret@127.0.0.1:9/") is None
    assert "Cannot log to MLflow at http://***@127.0.0.1:9/" in caplog.text
    assert "secret" not in caplog.text
