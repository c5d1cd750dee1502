"""Differences: what differs between two runs, for a terminal."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.report.facts.diff import Difference
from pipeline.report.wording.devices import verified_words
from pipeline.report.wording.formats import NO_FIGURE, plain, signed, yes_no
from pipeline.report.wording.terminal import TABLE_COLUMNS, as_text, pairs, plain_table, terminal_columns

_DIGEST_LETTERS = 12


def format_differences(differences: list[Difference], names: tuple[str, str], *, width: int | None = None) -> str:
    """The differences for a terminal, without colour codes.

    Args:
        differences: As `compare_runs` gives them.
        names: Of the two runs.
        width: Columns to fit; those of the terminal by default, see `terminal_columns`.
    """
    if not differences:
        return "The two runs do not differ.\n"
    width = width or terminal_columns()
    names = (plain(names[0]), plain(names[1]))
    return as_text(_as_lines(differences, names) if width < TABLE_COLUMNS else [_as_table(differences, names)], width)


def _as_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    table = plain_table()
    for heading in ("", *names):
        table.add_column(Text(heading), overflow="fold")
    table.add_column(Text("change"), justify="right")
    for section, found in _by_section(differences):
        table.add_section()
        table.add_row(Text(section.upper()))
        for one in found:
            cells = (f"  {plain(one.name)}", *_both(one), _show_change(one))
            table.add_row(*map(Text, cells))
    return table


def _as_lines(differences: Sequence[Difference], names: tuple[str, str]) -> list[RenderableType]:
    lines: list[RenderableType] = [pairs([("A", names[0]), ("B", names[1])])]
    for section, found in _by_section(differences):
        lines += ["", Text(section.upper())]
        for one in found:
            change = [("change", _show_change(one))] if one.change is not None else []
            lines += [Text(plain(one.name)), pairs([*zip("AB", _both(one), strict=True), *change])]
    return lines


def _by_section(differences: Sequence[Difference]) -> Iterator[tuple[str, list[Difference]]]:
    return ((section, list(found)) for section, found in groupby(differences, key=lambda one: one.section))


def _show_change(one: Difference) -> str:
    return "" if one.change is None else signed(one.change, _decimals(one.change))


def _both(one: Difference) -> tuple[str, str]:
    show = _show_verified if one.name == "device_verified" else _show
    return show(one.one), show(one.other)


def _show_verified(value: bool | str | None) -> str:
    return NO_FIGURE if value is None else verified_words(value)


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    if isinstance(value, float):
        return f"{value:,.{_decimals(value)}f}"
    if isinstance(value, int):
        return f"{value:,}"
    text = NO_FIGURE if value is None else plain(", ".join(map(str, value)) if isinstance(value, list) else value, 60)
    is_digest = len(text) in (16, 64) and set(text) <= set("0123456789abcdef")
    return text[:_DIGEST_LETTERS] if is_digest else text


def _decimals(figure: float) -> int:
    """As many as leave four digits or so."""
    return 4 if abs(figure) < 1 else 2 if abs(figure) < 1_000 else 0
