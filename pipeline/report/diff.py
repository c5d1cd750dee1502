"""Diff: the differences between two runs, from their settings to their metrics, as a table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.report.blocks import Column, Group, Table
from pipeline.report.data.reading import read_run
from pipeline.report.formats import NO_FIGURE, plain, signed, verified_as, verified_words, yes_no
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


def difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    """The differences of two runs of these names, by sections."""
    columns = (
        Column("", lambda one: plain(one.name)),
        Column(plain(names[0]), lambda one: _show(one.name, one.one)),
        Column(plain(names[1]), lambda one: _show(one.name, one.other)),
        Column("change", lambda one: "" if one.change is None else signed(one.change, _decimals(one.change)), True),
    )
    groups = groupby(differences, key=lambda one: one.section)
    return Table(columns, groups=[Group(section.upper(), list(found)) for section, found in groups])


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
            "device_verified": verified_as(run),
        },
        "host": {
            "hostname": run["hostname"],
            "fetched_from": run["fetched_from"],
            **{name: receipt.get(name) for name in ("host", "flags")},
        },
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


def _show(name: str, value: Any) -> str:
    if name == "device_verified" and value is not None:
        return verified_words(value)
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
    # About four digits.
    return 4 if abs(figure) < 1 else 2 if abs(figure) < 1_000 else 0
