"""Writes docs/reference/commands.md from the help texts of the commands: ``make config``.

The page has a marked part that this module writes. The rest of it is written by hand.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from unittest import mock

from pipeline.registry import Registry
from tasks.commands.command import Parser
from tasks.config_files import project_folder

PAGE = project_folder() / "docs" / "reference" / "commands.md"
_MAKEFILE = project_folder() / "Makefile"
# argparse wraps its text at this width.
_COLUMNS = "100"


def command_lines(name: str, function: Callable, targets: Mapping[str, str]) -> Iterator[str]:
    """The lines of the page for a command. ``targets`` maps each command to its target of make."""
    summary = function.__doc__.strip().partition("\n")[0]
    yield f"\n## {name}\n\n{summary}"
    if name in targets:
        yield f"\nIn a clone, `make {targets[name]}` runs this command."
    yield f"\n```text\n{help_text(name, function, summary)}\n```"


def help_text(name: str, function: Callable, summary: str) -> str:
    """The output of ``tensorcraft <name> --help``, wrapped at a fixed width."""
    output = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=_COLUMNS),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        function(Parser(name, summary), ["--help"])
    return output.getvalue().strip()


def targets_of_make() -> dict[str, str]:
    """Command → the target of make that runs it."""
    parts = re.split(r"\n(?=[a-z-]+:)", _MAKEFILE.read_text(encoding="utf-8"))
    found = {part.partition(":")[0]: re.search(r"-m tasks ([a-z-]+)", part) for part in parts}
    return {command[1]: target for target, command in found.items() if command}


def written(commands: Registry) -> str:
    """The content of the page for the commands of the pipeline."""
    targets = targets_of_make()
    lines = [line for name in commands.builtin for line in command_lines(name, commands.load(name), targets)]
    before, start, rest = re.split(r"(Written by make config[^\n]*\n)", PAGE.read_text(encoding="utf-8"))
    _, end, after = re.split(r"(\n\S+ End of the part that make config writes)", rest)
    return before + start + "\n".join(lines) + "\n" + end + after


def write(commands: Registry) -> None:
    """Write the page."""
    PAGE.write_text(written(commands), encoding="utf-8")
