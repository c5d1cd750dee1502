"""Messages: what is reported of a scheduled run that failed, or of the first that works again.

Beside the data's way; plain data, and nothing of Luigi. A webhook gets it as JSON; for e-mail the same is put in words.
"""

from collections.abc import Mapping

from tasks.operations.incidents import Outcome


def message(outcome: Outcome, *, event: str, host: str, since: str | None, report: str) -> dict[str, object]:
    """What is reported, as plain data.

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


def as_text(content: Mapping[str, object]) -> str:
    """The message for people."""
    facts = "\n".join(f"{name}: {content[name]}" for name in ("stage", "reason", "exit_code", "started_at", "report"))
    return "\n\n".join([str(content["text"]), facts, *(["\n".join(content["log"])] if content["log"] else [])])
