"""Notify: what is told to people of an unattended run that failed, or of the first that works again.

Beside the data's way. A message goes to an HTTP webhook as JSON; what it says in words is the same for e-mail. No
secret goes out: not the webhook's address, which is one, nor what looks like a password in a line of the log.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from pipeline.unattended.schedule import Outcome

_TIMEOUT_SECONDS = 10
# Of a service that is down for less than half a minute nobody has to hear.
_RETRY = {"total": 5, "backoff_factor": 1.0}
_PASSING = (429, 500, 502, 503, 504)

_HIDDEN = "***"
_SECRET_NAME = re.compile(r"passw|secret|token|api_?key|credential|webhook", re.IGNORECASE)
_SECRET_TEXT = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# A shorter value would be found in too many words that are none.
_SHORTEST_SECRET = 6

_logger = logging.getLogger(__name__)


def message(outcome: Outcome, *, event: str, host: str, since: str | None, report: str) -> dict[str, object]:
    """What is told, as plain data.

    Args:
        outcome: of the run.
        event: "failure" or "recovery".
        host: where it ran.
        since: when the incident began, ISO 8601, UTC.
        report: path or address of the newest report.
    """
    if event == "recovery":
        text = f"{outcome.task} on {host}: works again, after failing since {since}"
    else:
        place = f" in {outcome.stage}" if outcome.stage else ""
        text = f"{outcome.task} on {host}: failed{place} with exit code {outcome.exit_code}: {outcome.reason}"
    return {
        # What chat services show of an incoming webhook.
        "text": text,
        "event": event,
        "task": outcome.task,
        "stage": outcome.stage,
        "reason": outcome.reason,
        "exit_code": outcome.exit_code,
        "host": host,
        "started_at": outcome.started_at,
        "seconds": outcome.seconds,
        "since": since,
        "report": report,
        "log": list(outcome.log),
    }


def as_text(told: Mapping[str, object]) -> str:
    """The message for people."""
    facts = "\n".join(f"{name}: {told[name]}" for name in ("stage", "reason", "exit_code", "started_at", "report"))
    return "\n\n".join([str(told["text"]), facts, *(["\n".join(told["log"])] if told["log"] else [])])


def post(url: str, told: Mapping[str, object], *, retry: Mapping = _RETRY) -> bool:
    """Send the message to the webhook; whether it was taken. What went wrong is logged, without the address.

    Args:
        url: http or https.
        told: plain JSON data.
        retry: how often, and the factor in seconds of the growing pauses between.
    """
    # It logs the address it asks again.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    # A server must not make us wait for hours, nor send a message on to another.
    retries = Retry(
        **retry, status_forcelist=_PASSING, allowed_methods={"POST"}, respect_retry_after_header=False, redirect=False
    )
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        try:
            answer = session.post(url, json=told, timeout=_TIMEOUT_SECONDS, allow_redirects=False)
        except requests.RequestException as error:
            # Its text holds the address.
            _logger.warning("the webhook was not reached: %s", type(error).__name__)
            return False
    if not 200 <= answer.status_code < 300:
        _logger.warning("the webhook did not take the message: HTTP status %d", answer.status_code)
        return False
    return True


def secrets_of(environment: Mapping[str, str]) -> set[str]:
    """The values in the environment that by their names are secrets."""
    return {value for name, value in environment.items() if _SECRET_NAME.search(name)}


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without names and passwords in addresses."""
    for secret in sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _SECRET_TEXT.sub(_HIDDEN, text)


def host_secrets(url: str) -> set[str]:
    """What of a webhook's address is secret: the whole, and the path that follows its host."""
    return {url, url.partition("://")[2].partition("/")[2]} if url else set()


def environment_secrets() -> set[str]:
    """The secrets in this process's environment."""
    return secrets_of(os.environ)
