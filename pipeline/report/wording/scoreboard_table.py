"""Scoreboard: the report for a terminal, without colour codes."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.report.facts.batch_sizes import has_times, shown_tables
from pipeline.report.wording.batches import NO_TIMES, batch_headings, batch_rows, published_batch_rows, table_name
from pipeline.report.wording.changes import change_sentences
from pipeline.report.wording.experiments import OVERVIEW_HEADINGS, overview_rows, sections
from pipeline.report.wording.formats import NO_FIGURE
from pipeline.report.wording.rows import Row
from pipeline.report.wording.terminal import PIPED_COLUMNS, TABLE_COLUMNS, as_text, pairs, plain_table, terminal_columns
from pipeline.report.wording.verdict import verdict
from pipeline.report.wording.warnings import report_warnings

# Heading → the columns below which its words would be broken.
_TEXT_COLUMNS = {
    "": 1,
    "device:\nrequested →\neffective": 11,
    "device\nverified": 8,
    "data,\nverified": 10,
    "model\nrecipe": 12,
    "precision": 9,
}


def format_table(report: Mapping[str, Any], *, width: int | None = None) -> str:
    """The scoreboard for a terminal, without colour codes.

    Args:
        report: As `build_report` gives it.
        width: Columns to fit; those of the terminal by default, see `terminal_columns`.
    """
    width = width or terminal_columns()
    parts: list[RenderableType] = [
        *(Text(f"! {headline}. {explanation}") for headline, explanation in report_warnings(report)),
        Text(verdict(report)),
        *map(Text, change_sentences(report)),
        *_overview(report, width),
    ]
    boards = sections(report)
    for board in [one for one in boards if one["is_current"]] or boards:
        parts += ["", *([Text(f"Scoreboard: {board['name']}")] if len(boards) > 1 else [])]
        parts += _scoreboard_lines(board) if width < TABLE_COLUMNS else [_scoreboard(board, width)]
    for by_batch in shown_tables(report):
        parts += ["", *(_batch_lines(by_batch) if width < TABLE_COLUMNS else _batch_table(by_batch))]
    return as_text(parts, width)


def _overview(report: Mapping[str, Any], width: int) -> list[RenderableType]:
    lines = overview_rows(report)
    if not lines:
        return []
    if width < TABLE_COLUMNS:
        named = [[Text(cells[0]), pairs([*zip(OVERVIEW_HEADINGS[1:], cells[1:], strict=True)]), ""] for cells in lines]
        return ["", *(part for parts in named for part in parts)]
    table = plain_table()
    for heading in OVERVIEW_HEADINGS:
        table.add_column(Text(heading), overflow="fold")
    for cells in lines:
        table.add_row(*map(Text, cells))
    return ["", table]


def _all_rows(board: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    return [entry["row"] for entry in board["rows"]], [row for source in board["published"] for row in source["rows"]]


def _legend(published: Iterable[Row]) -> Text:
    marks = ["* requested", *(["† published elsewhere, not measured here"] if published else []), "– no figure"]
    return Text("   ".join(marks))


def _scoreboard(board: Mapping[str, Any], width: int) -> Table:
    table, wide_enough = plain_table(), width >= PIPED_COLUMNS
    for heading, columns in _TEXT_COLUMNS.items():
        table.add_column(Text(heading), min_width=columns if wide_enough else None, overflow="fold")
    # Folded where there is no room: a figure cut short would be a wrong one.
    for heading in ("batch", "epochs", "seconds", board["rate"], "test\naccuracy"):
        table.add_column(Text(heading), justify="right", overflow="fold")
    table.add_column(Text("speed-up,\nor why none"), min_width=16 if wide_enough else None, overflow="fold")
    ours, published = _all_rows(board)
    for row in ours:
        table.add_row(*map(Text, _cells(row)))
    table.add_section()
    for row in published:
        table.add_row(*map(Text, _cells(row)))
    table.caption = _legend(published)
    return table


def _cells(row: Row) -> tuple[str, ...]:
    return (
        _mark(row),
        _lines(f"{row.requested_device} → {row.effective_device}", row.host),
        row.device_verified,
        _lines(row.dataset, row.dataset_verified),
        _lines(*row.label.split(" / "), row.runs, *(row.details[1:] if row.published else ())),
        row.precision,
        row.global_batch_size,
        row.epochs,
        row.train_seconds.replace(" ±", "\n±"),
        row.examples_per_second.replace(" ±", "\n±"),
        _lines(row.val_accuracy.replace(" ±", "\n±"), row.beside, row.counted, _repeated(row)),
        _speedup(row),
    )


def _scoreboard_lines(board: Mapping[str, Any]) -> list[RenderableType]:
    ours, published = _all_rows(board)
    lines: list[RenderableType] = []
    for row in (*ours, *published):
        name = ", ".join(filter(None, [row.label, row.runs]))
        lines += [Text(" ".join(filter(None, [_mark(row), name]))), pairs(_facts(row, board["rate"])), ""]
    return [*lines, _legend(published)]


def _facts(row: Row, rate: str) -> list[tuple[str, str]]:
    accuracy = ", ".join(filter(None, [row.val_accuracy, row.beside, row.counted]))
    on = f" on {row.host}" if row.host else ""
    return [
        ("test accuracy", accuracy),
        (rate, row.examples_per_second),
        ("seconds", row.train_seconds),
        ("speed-up", _speedup(row)),
        ("batch, epochs", f"{row.global_batch_size}, {row.epochs}"),
        ("device", f"{row.requested_device} → {row.effective_device}{on}"),
        ("verified", row.device_verified),
        ("data", f"{row.dataset}, verified: {row.dataset_verified}"),
        ("precision", row.precision),
        *([("repeated", row.repeated)] if _repeated(row) else []),
    ]


def _batch_title(by_batch: Mapping[str, Any]) -> str:
    return f"by batch: {table_name(by_batch)}"


def _batch_table(by_batch: Mapping[str, Any]) -> list[RenderableType]:
    if not has_times(by_batch):
        return [Text(_batch_title(by_batch)), Text(NO_TIMES)]
    table = plain_table()
    table.add_column(Text(_batch_title(by_batch)), overflow="fold")
    for heading in batch_headings(by_batch):
        table.add_column(Text(heading), justify="right", overflow="fold")
    for name, points in (*batch_rows(by_batch), *published_batch_rows(by_batch)):
        for place, cells in enumerate(points):
            table.add_row(*map(Text, ("" if place else name, *cells)))
        table.add_section()
    return [table]


def _batch_lines(by_batch: Mapping[str, Any]) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(_batch_title(by_batch))]
    if not has_times(by_batch):
        return [*lines, Text(NO_TIMES)]
    for name, points in (*batch_rows(by_batch), *published_batch_rows(by_batch)):
        table = plain_table()
        for heading in batch_headings(by_batch):
            table.add_column(Text(heading), justify="right", overflow="fold")
        for cells in points:
            table.add_row(*map(Text, cells))
        lines += [Text(name), table]
    return lines


def _mark(row: Row) -> str:
    return "*" if row.mark else "†" if row.published else ""


def _speedup(row: Row) -> str:
    # A row with remarks never has a ratio, and they say why.
    return ", ".join(row.remarks) or row.speedup


def _repeated(row: Row) -> str:
    return "" if row.repeated == NO_FIGURE else row.repeated


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))
