"""The commands that run Luigi: ``run``, ``export``, ``nightly`` and ``report-killed``."""

from collections.abc import Sequence

import luigi.configuration
import luigi.retcodes

from tasks import remote_cache
from tasks.commands.command import Parser
from tasks.process import command_line
from tasks.train import Train


def run(parser: Parser, argv: Sequence[str]) -> int:
    """Build what is stale of Source, Records, Train and Report. This is the default."""
    settings = parser.parse_known_args(argv)[1]
    arguments = ["--module", "tasks", *_with_task(settings, "Report")]
    if {"Report", "Train", "Export"} & {*arguments} and _follow(arguments):
        return 0
    command_line.require_scheduler(arguments)
    try:
        luigi.retcodes.run_with_retcodes(arguments)
    except SystemExit as ended:
        if ended.code == 0:
            with command_line.in_force(arguments):
                remote_cache.put_pending()
        raise
    return 0


def export(parser: Parser, argv: Sequence[str]) -> int:
    """Write the run as SavedModel and LiteRT, each compared with Keras."""
    return run(parser, ["Export", *argv])


def nightly(parser: Parser, argv: Sequence[str]) -> int:
    """Run, keep the report of the date, and notify if the outcome changed."""
    from tasks import scheduled

    return scheduled.run_scheduled(_with_task(parser.parse_known_args(argv)[1], "Nightly"))


def report_killed(parser: Parser, argv: Sequence[str]) -> int:
    """Report the scheduled run that systemd describes."""
    from tasks import scheduled

    return scheduled.report_killed(_with_task(parser.parse_known_args(argv)[1], "Nightly"))


def _with_task(settings: list[str], task: str) -> list[str]:
    return settings if command_line.names_task(settings) else [task, *settings]


def _follow(arguments: list[str]) -> bool:
    """Train with process 0 if the settings make this process another one of several. Return whether they do."""
    is_asked_for = any("processes" in word for word in arguments)
    if not is_asked_for and luigi.configuration.get_config().get("Train", "processes", "1") == "1":
        return False
    with command_line.in_force(arguments):
        train = Train()
        if not train.group.is_chief:
            train.follow()
        return not train.group.is_chief
