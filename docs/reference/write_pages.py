"""Writes the marked parts of commands.md and file-formats.md, for ``make config``."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

from pipeline.runs.record import SCHEMA_VERSION, names
from tasks.commands import COMMANDS, Parser

_PAGES = Path(__file__).resolve().parent
COMMANDS_PAGE, FORMATS_PAGE = _PAGES / "commands.md", _PAGES / "file-formats.md"
_MAKEFILE = _PAGES.parent.parent / "Makefile"
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
    yield f"\n## {name}\n\n{function.__doc__}"
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
        function(Parser(name, function.__doc__), ["--help"])
    return output.getvalue().strip()


def targets_of_make() -> dict[str, str]:
    """Command → the target of make that runs it."""
    parts = re.split(r"\n(?=[a-z-]+:)", _MAKEFILE.read_text(encoding="utf-8"))
    found = {part.partition(":")[0]: re.search(r"-m tasks ([a-z-]+)", part) for part in parts}
    return {command[1]: target for target, command in found.items() if command}


def record_lines() -> Iterator[str]:
    """A table of the fields of run.json by part. Fields that comparable runs share are bold."""
    yield f"\nThe current `schema_version` is {SCHEMA_VERSION}. All earlier versions are read."
    yield "\n| part | description | fields |\n|---|---|---|"
    for part, description in _PARTS.items():
        compared = names(part, compared=True)
        fields = [f"**`{name}`**" if name in compared else f"`{name}`" for name in names(part)]
        yield f"| {part} | {description} | {', '.join(fields)} |"


def written(page: Path) -> str:
    """The content of a page as the code declares it now."""
    if page == COMMANDS_PAGE:
        targets = targets_of_make()
        lines = [line for name in COMMANDS.builtin for line in command_lines(name, COMMANDS.load(name), targets)]
    else:
        lines = [*record_lines()]
    before, start, rest = re.split(r"(Written by make config[^\n]*\n)", page.read_text(encoding="utf-8"))
    _, end, after = re.split(r"(\n\S+ End of the part that make config writes)", rest)
    return before + start + "\n".join(lines) + "\n" + end + after


if __name__ == "__main__":
    for path in (COMMANDS_PAGE, FORMATS_PAGE):
        path.write_text(written(path), encoding="utf-8")
