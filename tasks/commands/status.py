"""``make status``: each stage with its state and, where it is not fresh, why. Reads manifests and changes nothing."""

import argparse
import json

from tasks.commands import command
from tasks.dag import by_name
from tasks.dated_reports import missing_between, read_dated_reports
from tasks.report import history_folder
from tasks.stage import Condition, Stage

_ON_THE_REMOTE = "on the remote"


def parser() -> argparse.ArgumentParser:
    """The command's own flags."""
    own = command.parser("status", "Each stage: fresh, on the remote, stale, missing, damaged or unreadable, and why.")
    own.add_argument("--json", action="store_true", help="one JSON object, for programs")
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print the state of every stage."""
    conditions = {name: stage.condition() for name, stage in by_name(stages).items()} | _of_dated_reports()
    if arguments.json:
        print(json.dumps({name: {"state": c.state, "reasons": c.reasons} for name, c in conditions.items()}, indent=1))
    else:
        width = max(map(len, conditions)) + 1
        for name, condition in conditions.items():
            state = _ON_THE_REMOTE if condition.state == "remote" else condition.state
            print(f"{name:{width}} {state:10} {'; '.join(condition.reasons)}".rstrip())
    return 0


def _of_dated_reports() -> dict[str, Condition]:
    """How the dated copies of the report stand; nothing where none was ever made."""
    reports, damage = read_dated_reports(history_folder())
    reasons = list(map(str, damage))
    if len(reports) == 1:
        reasons.append(str(reports[0].date))
    elif reports:
        missing = missing_between(reports)
        reasons.append(f"{len(reports)} dates, {reports[0].date} to {reports[-1].date}, {missing} between them missing")
    return {"Nightly": Condition("damaged" if damage else "fresh", tuple(reasons))} if reasons else {}


if __name__ == "__main__":
    command.run(main, parser())
