"""``make report-diff A=… B=…``: what differs between two runs."""

import argparse

from tasks.commands import command
from tasks.stage import Stage


def parser() -> argparse.ArgumentParser:
    """The command's own arguments, both of which ``make`` passes on though nobody named them."""
    own = command.parser(
        "report-diff",
        "What differs between two runs: settings, data, code, versions, hardware, metrics.",
        usage='make report-diff A=<run> B=<run> [ARGS="--Storage-root ..."]',
    )
    for name in ("A", "B"):
        own.add_argument(name, type=command.named(f"{command.A_RUN},"), help=command.A_RUN)
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print a table of what differs between the runs A and B."""
    folders = [command.run_folder(name, getattr(arguments, name)) for name in ("A", "B")]
    from pipeline.report import compare_runs, format_differences

    print(format_differences(compare_runs(*folders), tuple(folder.name for folder in folders)), end="")
    return 0


if __name__ == "__main__":
    command.run(main, parser())
