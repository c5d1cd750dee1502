"""Terminal: how text and tables come to fit the terminal they are printed in.

A table of twelve columns is unreadable in a narrow terminal, however it is folded: below TABLE_COLUMNS each row
becomes a few lines of "what: figure". Piped output, which no window limits, has PIPED_COLUMNS. rich gets Text, never
markup: what a run says about itself is untrusted.
"""

import io
import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPED_COLUMNS = 120
#: Below so many columns a table is given row by row.
TABLE_COLUMNS = 100
# Narrower than any terminal in use; rich would print nothing at all in one column.
_FEWEST_COLUMNS = 20


def terminal_columns() -> int:
    """Columns of the terminal that standard output is shown in; PIPED_COLUMNS where it is no terminal."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else PIPED_COLUMNS


def as_text(parts: Iterable[RenderableType], width: int) -> str:
    """What is to be printed, as lines of at most ``width`` columns, without colour codes."""
    console = Console(
        file=io.StringIO(),
        width=max(width, _FEWEST_COLUMNS),
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def plain_table() -> Table:
    """A table as all of them look: a line below its headings, and one space between its columns."""
    # The box puts that space there: with more the scoreboard would not fit.
    return Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, caption_justify="left")


def pairs(facts: Iterable[tuple[str, str]]) -> RenderableType:
    """Names and values, indented below the line they belong to."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(Text(name), Text(value))
    return Padding(grid, (0, 0, 0, 2))
