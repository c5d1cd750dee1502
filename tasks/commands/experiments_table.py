"""``make experiments-table``: the README's table of results, as Markdown, from the runs under the storage root."""

import argparse

from pipeline.errors import SettingsError
from tasks.commands import command
from tasks.report import Report, published_rows
from tasks.stage import Stage
from tasks.storage import root_folder


def parser() -> argparse.ArgumentParser:
    """The command has no flags of its own."""
    return command.parser("experiments-table", "The results of each experiment and the machine's receipt, as Markdown.")


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print the table.

    Raises:
        SettingsError: no run has finished.
    """
    report = next(stage for stage in stages if isinstance(stage, Report))
    from pipeline.report import build_report, format_experiments

    folders = [folder for folder, _ in report.whole_runs()]
    table = format_experiments(build_report(folders, current=[], published=published_rows()))
    if not table:
        raise SettingsError(f"{root_folder()}: expected runs that have finished, found none: run make pipeline")
    print(table, end="")
    return 0


if __name__ == "__main__":
    command.run(main, parser())
