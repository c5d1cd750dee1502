"""Generates sections of docs/reference/commands.md and file-formats.md, for ``make config``.

Each page has a marked section that this module writes. People write the other sections.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

from pipeline.registry import Registry
from tasks.commands import summary
from tasks.commands.command import Parser
from tasks.config_files import project_folder

_PAGES = project_folder() / "docs" / "reference"
COMMANDS_PAGE, FORMATS_PAGE = _PAGES / "commands.md", _PAGES / "file-formats.md"
_MAKEFILE = project_folder() / "Makefile"
# argparse wraps its text at this width.
_COLUMNS = "100"
# Description of the fields in each section of a run's record.
_PARTS = {
    "identity": "Name and origin of the run.",
    "setting": "Values of the settings, as requested.",
    "data": "Dataset, records and initial weights.",
    "hardware": "Hardware that the run used.",
    "computation": "Choices that the settings leave open.",
    "evidence": "Evidence of hardware and data, see [the receipt](../concepts/receipt.md).",
    "measured": "Results. Seconds are wall-clock time, and accuracies are from 0 to 1.",
}


def command_lines(name: str, function: Callable, targets: Mapping[str, str]) -> Iterator[str]:
    """The lines of the page for a command. ``targets`` maps each command to its target of make."""
    yield f"\n## {name}\n\n{summary(function)}"
    if name in targets:
        yield f"\nIn a clone, `make {targets[name]}` runs this command."
    yield f"\n```text\n{help_text(name, function)}\n```"


def help_text(name: str, function: Callable) -> str:
    """The output of ``tensorcraft <name> --help``, wrapped at a fixed width."""
    output = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS=_COLUMNS),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        function(Parser(name, summary(function)), ["--help"])
    return output.getvalue().strip()


def targets_of_make() -> dict[str, str]:
    """Command → the target of make that runs it."""
    parts = re.split(r"\n(?=[a-z-]+:)", _MAKEFILE.read_text(encoding="utf-8"))
    found = {part.partition(":")[0]: re.search(r"-m tasks ([a-z-]+)", part) for part in parts}
    return {command[1]: target for target, command in found.items() if command}


def record_lines() -> Iterator[str]:
    """A table of the fields of run.json by part. Fields that comparable runs share are bold."""
    from pipeline.runs.record import SCHEMA_VERSION, names

    yield f"\nThe current `schema_version` is {SCHEMA_VERSION}. All earlier versions are read."
    yield "\n| part | description | fields |\n|---|---|---|"
    for part, description in _PARTS.items():
        compared = names(part, compared=True)
        fields = [f"**`{name}`**" if name in compared else f"`{name}`" for name in names(part)]
        yield f"| {part} | {description} | {', '.join(fields)} |"


def written(page: Path, commands: Registry) -> str:
    """The content of a page as the code declares it now."""
    if page == COMMANDS_PAGE:
        targets = targets_of_make()
        lines = [line for name in commands.builtin for line in command_lines(name, commands.load(name), targets)]
    else:
        lines = [*record_lines()]
    before, start, rest = re.split(r"(Written by make config[^\n]*\n)", page.read_text(encoding="utf-8"))
    _, end, after = re.split(r"(\n\S+ End of the part that make config writes)", rest)
    return before + start + "\n".join(lines) + "\n" + end + after


def write(commands: Registry) -> None:
    """Write the generated parts."""
    for page in (COMMANDS_PAGE, FORMATS_PAGE):
        page.write_text(written(page, commands), encoding="utf-8")
