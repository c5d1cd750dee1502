"""What the commands beside the pipeline share: flags of their own, and the DAG that Luigi's overrides describe.

A command's work happens inside the overrides, all of it: what is computed before or after them (the storage root above
all) would be that of the settings file, whatever root was asked for.
"""

import argparse
import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.errors import SettingsError
from tasks import program
from tasks.process import command_line
from tasks.stage import Stage, from_below
from tasks.storage import root_folder


@contextlib.contextmanager
def stages_of(overrides: Sequence[str], flags: Collection[str] = ()) -> Iterator[list[Stage]]:
    """The stages, from the source to the report, under settings such as ``--Train-epochs 1``.

    ``flags``: the command's own, to be proposed where one is unknown.
    """
    with command_line.in_force(["--module", "tasks", "Report", *overrides], flags) as parser:
        yield from_below(parser.get_task_obj())


class Parser(argparse.ArgumentParser):
    """A parser of a command's own flags."""

    def error(self, message: str) -> None:
        """Raise an error of one line, as all are."""
        raise SettingsError(f"command line: {message}. {' '.join(self.format_usage().split())}")

    def flags(self) -> list[str]:
        """The command's own flags."""
        return [flag for action in self._actions for flag in action.option_strings]


def parser(name: str, description: str, **more: str) -> Parser:
    """A parser for a command's own flags; what it does not know is an override for Luigi."""
    return Parser(
        prog=f"make {name}",
        description=description,
        epilog=f'Settings as for the pipeline: make {name} ARGS="--Train-epochs 1".',
        # The beginning of a flag of ours may be a setting.
        allow_abbrev=False,
        **more,
    )


def run(body: Callable[[argparse.Namespace, list[Stage]], int], own: Parser) -> None:
    """Run a command to its exit code: all of it under the overrides that follow its own flags."""

    def main(argv: list[str]) -> int:
        arguments, overrides = own.parse_known_args(argv)
        with stages_of(overrides, own.flags()) as stages:
            return body(arguments, stages)

    program.run(main)


A_RUN = "a run's folder, or the beginning of its name or fingerprint"


def named(what: str) -> Callable[[str], str]:
    """A type for an argument that refuses what was left empty: ``make`` passes on variables that nobody named."""

    def check(text: str) -> str:
        if not text:
            raise argparse.ArgumentTypeError(f"{what} is missing")
        return text

    return check


def run_folder(argument: str, run: str) -> Path:
    """The run that was asked for; nothing outside the runs' own folder is one, wherever a link leads.

    Raises:
        SettingsError: there is no such run, or several.
    """
    place = root_folder() / layout.RUNS
    runs = [path for path in layout.artefact_folders(place) if path.is_dir() and path.resolve().parent == place]
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
