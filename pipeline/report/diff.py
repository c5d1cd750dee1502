"""Diff: what differs between two runs, from what they were made of to what they measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report.formats import NO_FIGURE, plain, signed, yes_no
from pipeline.report.reading import read_run
from pipeline.report.terminal import TABLE_COLUMNS, as_text, pairs, plain_table, terminal_columns
from pipeline.report.wording import device_verified
from pipeline.runs.record import names

_DIGEST_LETTERS = 12


@dataclass(frozen=True)
class Difference:
    """One thing that differs; None where a run says nothing of it."""

    section: str
    name: str
    one: Any
    other: Any

    @property
    def change(self) -> float | None:
        """How much larger the other figure is; None where it is no measured figure."""
        figures = (self.one, self.other)
        known = all(isinstance(figure, int | float) and not isinstance(figure, bool) for figure in figures)
        return self.other - self.one if self.section == "metrics" and known else None


def compare_runs(one: Path, other: Path) -> list[Difference]:
    """What differs between two runs' folders, in the order of the sections of _facts: settings first, metrics last.

    Raises:
        DamagedArtefactError: a folder holds no run, or a damaged one.
    """
    sections = [_facts(folder) for folder in (one, other)]
    found = []
    for section in sections[0]:
        leaves = [dict(_leaves(facts[section])) for facts in sections]
        for name in dict.fromkeys((*leaves[0], *leaves[1])):
            values = [side.get(name) for side in leaves]
            if values[0] != values[1]:
                found.append(Difference(section, name, *values))
    return found


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
            cells = (f"  {plain(one.name)}", _show(one.one), _show(one.other), _show_change(one))
            table.add_row(*map(Text, cells))
    return table


def _as_lines(differences: Sequence[Difference], names: tuple[str, str]) -> list[RenderableType]:
    lines: list[RenderableType] = [pairs([("A", names[0]), ("B", names[1])])]
    for section, found in _by_section(differences):
        lines += ["", Text(section.upper())]
        for one in found:
            change = [("change", _show_change(one))] if one.change is not None else []
            lines += [Text(plain(one.name)), pairs([("A", _show(one.one)), ("B", _show(one.other)), *change])]
    return lines


def _by_section(differences: Sequence[Difference]) -> Iterator[tuple[str, list[Difference]]]:
    return ((section, list(found)) for section, found in groupby(differences, key=lambda one: one.section))


def _show_change(one: Difference) -> str:
    return "" if one.change is None else signed(one.change, _decimals(one.change))


def _facts(folder: Path) -> dict[str, Any]:
    run = read_run(folder)
    identity = read_manifest(folder)["identity"] if (folder / MANIFEST_NAME).exists() else {}
    receipt, evaluation = run["receipt"] or {}, run["evaluation"] or {}
    return {
        # A manifest knows them by the settings' own names.
        "settings": identity.get("settings") or {name: run[name] for name in names("setting")},
        "data": {name: run[name] for name in names("data")},
        "code": identity.get("code", {}),
        "versions": {**identity.get("packages", {}), **_part(receipt, "versions")},
        "hardware": {
            **{name: run[name] for name in names("hardware", "computation")},
            # What is more than a word, as the receipt, is named by its parts where they matter.
            **{name: run[name] for name in names("evidence") if not isinstance(run[name], Mapping | list)},
            "device_verified": device_verified(run),
        },
        "host": {"hostname": run["hostname"], **{name: receipt.get(name) for name in ("host", "flags")}},
        "metrics": {
            "status": run["status"],
            **{name: run[name] for name in names("measured")},
            "expected_calibration_error": evaluation.get("expected_calibration_error"),
        },
    }


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, Mapping) else {}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of each leaf; a list is one: its places mean nothing by themselves."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, child in value.items():
        yield from _leaves(child, f"{path}.{name}" if path else str(name))


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
