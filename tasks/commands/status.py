"""``status``: the state of each stage. It reads manifests and changes nothing."""

import argparse
import dataclasses
import json

from tasks.commands.command import argument, command
from tasks.dated_reports import missing_between, read_dated_reports
from tasks.report import history_folder
from tasks.stage import Stage, by_name
from tasks.status import State, Status


@command(argument("--json", action="store_true", help="print one JSON object, for programs"))
def status(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the state of each stage, and why it is not fresh."""
    found = {name: stage.status() for name, stage in by_name(stages).items()} | _of_dated_reports()
    if arguments.json:
        print(json.dumps({name: dataclasses.asdict(one) for name, one in found.items()}, indent=1))
    else:
        width = max(map(len, found)) + 1
        for name, one in found.items():
            reasons = [*([f"on the remote, {one.remote}"] if one.remote else []), *one.reasons]
            print(f"{name:{width}} {one.state:10} {'; '.join(reasons)}".rstrip())
    return 0


def _of_dated_reports() -> dict[str, Status]:
    """How the dated copies of the report stand; nothing where none was ever made."""
    reports, damage = read_dated_reports(history_folder())
    reasons = list(map(str, damage))
    if len(reports) == 1:
        reasons.append(str(reports[0].date))
    elif reports:
        missing = missing_between(reports)
        reasons.append(f"{len(reports)} dates, {reports[0].date} to {reports[-1].date}, {missing} between them missing")
    return {"Nightly": Status(State.DAMAGED if damage else State.FRESH, tuple(reasons))} if reasons else {}
