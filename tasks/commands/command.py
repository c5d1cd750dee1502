"""What the commands beside the pipeline share: flags of their own, and the DAG that Luigi's overrides describe.

A command's whole work happens inside the overrides: what is computed before or after them (the storage root above all)
would be that of the settings file, whatever root was asked for.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import PipelineError
from tasks.process import console
from tasks.stage import Stage


@contextlib.contextmanager
def stages_of(overrides: Sequence[str]) -> Iterator[list[Stage]]:
    """The stages, from the source to the report, under settings such as ``--Train-epochs 1``."""
    with CmdlineParser.global_instance(["--module", "tasks", "Report", *overrides]) as command_line:
        yield from_below(command_line.get_task_obj())


def from_below(stage: Stage) -> list[Stage]:
    """The stage and all it is made from, the source first."""
    # Several runs are made from the same records: each stage once, where it is first needed.
    return list(dict.fromkeys(_from_below(stage)))


def by_name(stages: Sequence[Stage]) -> dict[str, Stage]:
    """The stages by their tasks' names; several of one name are told apart by the settings in which they differ."""
    named = {}
    for stage in stages:
        others = [other.param_kwargs for other in stages if other.task_family == stage.task_family]
        apart = [
            f"{setting} {value}"
            for setting, value in stage.param_kwargs.items()
            if any(other[setting] != value for other in others)
        ]
        named[" ".join([stage.task_family, ", ".join(apart)]).strip()] = stage
    return named


def parser(name: str, description: str, **more: str) -> argparse.ArgumentParser:
    """A parser for a command's own flags; what it does not know is an override for Luigi."""
    return argparse.ArgumentParser(
        prog=f"make {name}",
        description=description,
        epilog=f'Settings as for the pipeline: make {name} ARGS="--Train-epochs 1".',
        # The beginning of a flag of ours may be a setting.
        allow_abbrev=False,
        **more,
    )


def run(body: Callable[[argparse.Namespace, list[Stage]], int], own: argparse.ArgumentParser) -> None:
    """Run a command to its exit code: all of it under the overrides that follow its own flags."""

    def main(argv: list[str]) -> int:
        arguments, overrides = own.parse_known_args(argv)
        with stages_of(overrides) as stages:
            return body(arguments, stages)

    run_main(main)


def run_main(main: Callable[[list[str]], int]) -> None:
    """Run a program that takes its whole command line itself; an error written for the user ends with its own code."""
    try:
        sys.exit(main(sys.argv[1:]))
    except PipelineError as error:
        console.show(error)
        sys.exit(error.exit_code)


def _from_below(stage: Stage) -> Iterator[Stage]:
    for below in stage.below:
        yield from _from_below(below)
    yield stage
