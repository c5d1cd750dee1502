"""``make report-diff A=… B=…``: what differs between two runs."""

import argparse
from pathlib import Path

from pipeline.errors import SettingsError
from tasks.commands import command
from tasks.stage import Stage
from tasks.storage import root_folder
from tasks.train import Train


def parser() -> argparse.ArgumentParser:
    """The command's own arguments, both of which ``make`` passes on though nobody named them."""
    own = command.parser(
        "report-diff",
        "What differs between two runs: settings, data, code, versions, hardware, metrics.",
        usage='make report-diff A=<run> B=<run> [ARGS="--Storage-root ..."]',
    )
    for name in ("A", "B"):
        own.add_argument(name, type=_named, help="a run's folder, or the beginning of its name or fingerprint")
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Print a table of what differs between the runs A and B."""
    folders = [_folder_of(name, getattr(arguments, name)) for name in ("A", "B")]
    from pipeline.report import compare_runs, format_differences

    print(format_differences(compare_runs(*folders), tuple(folder.name for folder in folders)), end="")
    return 0


def _named(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("a run's folder, or the beginning of its name or fingerprint, is missing")
    return text


def _folder_of(argument: str, run: str) -> Path:
    """The run that was asked for; nothing outside the runs' own folder is one, wherever a link leads.

    Raises:
        SettingsError: there is no such run, or several.
    """
    place = root_folder() / Train.kind
    runs = [path for path in sorted(place.glob("[!.]*")) if path.is_dir() and path.resolve().parent == place]
    if Path(run).resolve() in runs:
        return Path(run).resolve()
    found = [folder for folder in runs if folder.name.startswith(run) or folder.name.rpartition("-")[2].startswith(run)]
    if len(found) != 1:
        known = ", ".join(folder.name for folder in found or runs) or "none"
        raise SettingsError(
            f"{argument}: expected a run in {place}, by its folder or the beginning of its name or fingerprint, got "
            f"{run!r}; known: {known}"
        )
    return found[0]


if __name__ == "__main__":
    command.run(main, parser())
