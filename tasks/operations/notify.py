"""Notify: each channel gets what it is due once a scheduled run has ended, and that is remembered.

Channels are a webhook and e-mail, as ``[Notify]`` and Luigi's own ``[email]`` say.
"""

import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import filelock
import luigi.notifications

from pipeline.errors import PipelineError
from tasks.operations import incidents, messages, redaction, webhook
from tasks.operations.incidents import Outcome
from tasks.operations.state_file import read_state, write_state
from tasks.sections import Notify, report_path


def notify_and_remember(path: Path | None, outcome: Outcome) -> None:
    """Send each channel what it is due, and remember the outcome; without a path nothing is remembered.

    Raises:
        OSError: the state cannot be written.
    """
    if path is None:
        _notify(incidents.empty_state(), outcome)
        return
    with filelock.FileLock(path.with_name(f".{path.name}.lock")):
        state = read_state(path)
        _notify(state, outcome)
        incidents.remember(state, outcome)
        write_state(path, state)


def known_secrets() -> set[str]:
    """What must not leave this machine in a message, nor stand in what is remembered."""
    known = {luigi.notifications.smtp().password or "", *redaction.host_secrets(Notify().webhook_url)}
    return known | redaction.environment_secrets()


def _notify(state: dict, outcome: Outcome) -> None:
    report = ""
    with contextlib.suppress(PipelineError):
        report = report_path()
    for channel, send in _channels().items():
        for event, one in incidents.due(state, outcome, channel):
            since = incidents.failing_since(state, one)
            if not send(messages.message(one, event=event, host=socket.gethostname(), since=since, report=report)):
                incidents.mark_pending(state, outcome, channel)
                break
            incidents.mark_reported(state, one, channel)


def _channels() -> dict[str, Callable[[dict], bool]]:
    """Who subscribes: channel → what sends it a message, and says whether it was accepted."""
    channels = {"webhook": _by_webhook} if Notify().webhook_url else {}
    return channels | ({"email": _by_email} if luigi.notifications.email().receiver else {})


def _by_webhook(content: dict) -> bool:
    return webhook.post(Notify().webhook_url, content)


def _by_email(content: dict) -> bool:
    # Luigi logs what goes wrong here.
    luigi.notifications.send_error_email(content["text"], messages.as_text(content))
    return True
