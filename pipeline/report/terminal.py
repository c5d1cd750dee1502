"""Terminal: the report's data to plain text that fits the terminal it is printed in.

A table of twelve columns is unreadable in a narrow terminal, however it is folded: below TABLE_COLUMNS each row
becomes a few lines of "what: figure". Piped output, which no window limits, has PIPED_COLUMNS. rich gets Text, never
markup: what a run says about itself is untrusted.
"""

import io
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.report import rows, wording

PIPED_COLUMNS = 120
#: Below so many columns a table is given row by row.
TABLE_COLUMNS = 100
# Narrower than any terminal in use; rich would print nothing at all in one column.
_FEWEST_COLUMNS = 20

# Heading → the columns below which its words would be broken.
_TEXT_COLUMNS = {
    "": 1,
    "device:\nrequested →\neffective": 11,
    "device\nverified": 8,
    "data,\nverified": 10,
    "model\nrecipe": 12,
    "precision": 9,
}


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


def format_table(report: Mapping[str, Any], *, width: int | None = None) -> str:
    """The scoreboard for a terminal, without colour codes.

    Args:
        report: As `build_report` gives it.
        width: Columns to fit; those of the terminal by default, see `terminal_columns`.
    """
    width = width or terminal_columns()
    parts: list[RenderableType] = [
        *(Text(f"! {headline}. {explanation}") for headline, explanation in wording.report_warnings(report)),
        Text(wording.verdict(report)),
        *map(Text, wording.change_sentences(report)),
        "",
        *(_scoreboard_lines(report) if width < TABLE_COLUMNS else [_scoreboard(report, width)]),
    ]
    for batches in report["batch_sizes"]:
        parts += ["", *(_batch_lines(batches) if width < TABLE_COLUMNS else _batch_table(batches))]
    return as_text(parts, width)


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


def _all_rows(report: Mapping[str, Any]) -> tuple[list[rows.Row], list[rows.Row]]:
    ours = [rows.scenario_row(scenario, report["current"]) for scenario in report["scenarios"]]
    return ours, [rows.published_row(row) for row in report["published"]]


def _legend(published: Iterable[rows.Row]) -> Text:
    marks = ["* requested", *(["† published elsewhere, not measured here"] if published else []), "– no figure"]
    return Text("   ".join(marks))


def _scoreboard(report: Mapping[str, Any], width: int) -> Table:
    table, wide_enough = plain_table(), width >= PIPED_COLUMNS
    for heading, columns in _TEXT_COLUMNS.items():
        table.add_column(Text(heading), min_width=columns if wide_enough else None, overflow="fold")
    # Folded where there is no room: a figure cut short would be a wrong one.
    for heading in ("batch", "epochs", "seconds", "images/s", "test\naccuracy"):
        table.add_column(Text(heading), justify="right", overflow="fold")
    table.add_column(Text("speed-up,\nor why none"), min_width=16 if wide_enough else None, overflow="fold")
    ours, published = _all_rows(report)
    for row in ours:
        table.add_row(*map(Text, _cells(row)))
    table.add_section()
    for row in published:
        table.add_row(*map(Text, _cells(row)))
    table.caption = _legend(published)
    return table


def _cells(row: rows.Row) -> tuple[str, ...]:
    return (
        _mark(row),
        _lines(f"{row.requested_device} → {row.effective_device}", row.host),
        row.device_verified,
        _lines(row.dataset, row.dataset_verified),
        _lines(*row.label.split(" / "), row.runs),
        row.precision,
        row.global_batch_size,
        row.epochs,
        row.train_seconds.replace(" ±", "\n±"),
        row.examples_per_second.replace(" ±", "\n±"),
        _lines(row.val_accuracy.replace(" ±", "\n±"), row.validation_accuracy),
        _speedup(row),
    )


def _scoreboard_lines(report: Mapping[str, Any]) -> list[RenderableType]:
    ours, published = _all_rows(report)
    lines: list[RenderableType] = []
    for row in (*ours, *published):
        name = ", ".join(filter(None, [row.label, row.runs]))
        lines += [Text(" ".join(filter(None, [_mark(row), name]))), pairs(_facts(row)), ""]
    return [*lines, _legend(published)]


def _facts(row: rows.Row) -> list[tuple[str, str]]:
    accuracy = ", ".join(filter(None, [row.val_accuracy, row.validation_accuracy]))
    on = f" on {row.host}" if row.host else ""
    return [
        ("test accuracy", accuracy),
        ("images/s", row.examples_per_second),
        ("seconds", row.train_seconds),
        ("speed-up", _speedup(row)),
        ("batch, epochs", f"{row.global_batch_size}, {row.epochs}"),
        ("device", f"{row.requested_device} → {row.effective_device}{on}"),
        ("verified", row.device_verified),
        ("data", f"{row.dataset}, verified: {row.dataset_verified}"),
        ("precision", row.precision),
    ]


def _batch_title(batches: Mapping[str, Any]) -> str:
    return f"by batch: {rows.table_name(batches)}"


def _batch_table(batches: Mapping[str, Any]) -> list[RenderableType]:
    if not rows.has_times(batches):
        return [Text(_batch_title(batches)), Text(rows.NO_TIMES)]
    table = plain_table()
    table.add_column(Text(_batch_title(batches)), overflow="fold")
    for heading in rows.BATCH_HEADINGS:
        table.add_column(Text(heading), justify="right", overflow="fold")
    for name, points in rows.batch_rows(batches):
        for place, cells in enumerate(points):
            table.add_row(*map(Text, ("" if place else name, *cells)))
        table.add_section()
    return [table]


def _batch_lines(batches: Mapping[str, Any]) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(_batch_title(batches))]
    if not rows.has_times(batches):
        return [*lines, Text(rows.NO_TIMES)]
    for name, points in rows.batch_rows(batches):
        table = plain_table()
        for heading in rows.BATCH_HEADINGS:
            table.add_column(Text(heading), justify="right", overflow="fold")
        for cells in points:
            table.add_row(*map(Text, cells))
        lines += [Text(name), table]
    return lines


def _mark(row: rows.Row) -> str:
    return "*" if row.mark else "†" if row.published else ""


def _speedup(row: rows.Row) -> str:
    # A row with remarks never has a ratio, and they say why.
    return ", ".join(row.remarks) or row.speedup


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))
